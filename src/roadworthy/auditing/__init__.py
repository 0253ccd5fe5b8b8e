"""Audit: a run as one signed archive, and its replay on the machine of an assessor."""

from roadworthy.auditing.making import Bundle, bundle_run
from roadworthy.auditing.outcome import Replay
from roadworthy.auditing.replaying import replay_bundle

__all__ = ["Bundle", "Replay", "bundle_run", "replay_bundle"]
