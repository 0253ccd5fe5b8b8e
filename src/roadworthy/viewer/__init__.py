"""The viewer: a folder of runs in a browser, read-only, on this machine or as files for a web server."""

from __future__ import annotations

from roadworthy.viewer.serving import serve

__all__ = ["serve"]
