"""Models behind HTTP: a client, wire formats in a registry, and the adapter that makes a `Model` of both.

Nothing is sent anywhere but to the address that the user names as a model.
"""

from __future__ import annotations

from roadworthy.models.http import images, kserve  # noqa: F401 (register their formats)
from roadworthy.models.http.adapter import HTTP_ISOLATION, HttpModel, check_http_entry
from roadworthy.models.http.address import is_web_model, parse_address
from roadworthy.models.http.formats import FORMATS, WireFormat

__all__ = ["FORMATS", "HTTP_ISOLATION", "HttpModel", "WireFormat", "check_http_entry", "is_web_model", "parse_address"]
