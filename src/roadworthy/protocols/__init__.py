"""The test procedures: which stimuli, which cases, which tables."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules

import roadworthy.protocols.classification
import roadworthy.protocols.ood  # noqa: F401 (these register, as the folders below do)
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.protocols.base import PROTOCOLS, Protocol
from roadworthy.protocols.suites import DEFAULTS, Suite, find_suite, known_suites, suite_for
from roadworthy.verdict import Criterion

__all__ = [
    "DEFAULTS",
    "PROTOCOLS",
    "Protocol",
    "Suite",
    "default_protocol",
    "find_protocol",
    "find_suite",
    "known_suites",
    "protocol_of",
    "suite_for",
]


def find_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    return PROTOCOLS.get(name)()


def default_protocol() -> Protocol:
    """The protocol of studies and criteria that name none."""
    return next(PROTOCOLS.get(name)() for name in PROTOCOLS if PROTOCOLS.get(name).is_default)


def protocol_of(criterion: Criterion, run: Iterable[str]) -> Protocol:
    """The protocol a criterion speaks of: that of `where: {protocol: ...}`, the run's only one, or the default."""
    known = list(run)
    wanted = criterion.where.get("protocol", known[0] if len(known) == 1 else default_protocol().name)
    named = wanted if isinstance(wanted, list) else [wanted]
    if len(named) != 1:
        raise InputError(f"criterion {criterion.id} must name one protocol, not {named}")
    if named[0] not in known:
        raise InputError(f"criterion {criterion.id}: {UnknownName('protocol', str(named[0]), known)}")
    return find_protocol(named[0])


for _module in iter_modules(__path__):
    if _module.ispkg:
        import_module(f"{__name__}.{_module.name}")
