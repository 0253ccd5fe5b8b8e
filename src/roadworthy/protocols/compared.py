"""One side of a comparison: a model of a run, with all that the run says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roadworthy.protocols.changes import same_cases
from roadworthy.statistics.estimates import CONFIDENCE
from roadworthy.statistics.paired import PairedChange

if TYPE_CHECKING:
    from roadworthy.protocols.base import Evidence, StoredCase


@dataclass(frozen=True)
class Compared:
    """One model of one run: its name in the comparison, its name in the run, and what the run says by protocol.

    `source` is the one it was tested on where the run has several, `settings` and `contexts` are those of each
    protocol, `confidence` is that of the intervals of its changes.
    """

    label: str
    model: str
    evidence: Mapping[str, Evidence]
    cases: Mapping[str, Sequence[StoredCase]]
    source: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    contexts: Mapping[str, Any] = field(default_factory=dict)
    confidence: float = CONFIDENCE

    def __str__(self) -> str:
        return f"{self.label} on {self.source}" if self.source else self.label

    def change(
        self, condition: str, level: float, metric: str, where: Mapping[str, Any], reason: str = ""
    ) -> PairedChange:
        """A change to this system that is still to be measured.

        `where` is the condition as a criterion's measurements name it; the model can be left out.
        """
        return PairedChange(condition, level, metric, reason=reason, columns=where, confidence=self.confidence)

    def reads_the_same(self, other: Compared, protocol: str) -> bool:
        """Whether both read the same stored answers in the same way, so that no figure of theirs can differ."""
        alike = self.settings.get(protocol) == other.settings.get(protocol)
        alike = alike and self.contexts.get(protocol) == other.contexts.get(protocol)
        return alike and same_cases(self.cases[protocol], other.cases[protocol])

    def shown(self, protocol: str) -> list[StoredCase]:
        """Its cases under a protocol."""
        return [case for case in self.cases[protocol] if case.system == self.model]
