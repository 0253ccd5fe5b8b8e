"""The test procedures: which stimuli, which cases, which tables."""

from __future__ import annotations

from collections.abc import Iterable

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.protocols.base import Protocol
from roadworthy.protocols.classification import Classification
from roadworthy.protocols.dependability import Dependability
from roadworthy.protocols.ood import OutOfDistribution
from roadworthy.verdict import Criterion

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol for protocol in (Classification(), OutOfDistribution(), Dependability())
}


def find_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise UnknownName("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


def protocol_of(criterion: Criterion, run: Iterable[str]) -> Protocol:
    """The protocol a criterion speaks of: that of `where: {protocol: ...}`, or classification; the run must have it."""
    wanted = criterion.where.get("protocol", Classification.name)
    named = wanted if isinstance(wanted, list) else [wanted]
    if len(named) != 1:
        raise InputError(f"criterion {criterion.id} must name one protocol, not {named}")
    known = list(run)
    if named[0] not in known:
        raise InputError(f"criterion {criterion.id}: {UnknownName('protocol', str(named[0]), known)}")
    return find_protocol(named[0])
