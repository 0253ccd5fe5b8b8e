"""What came of a replay: every check with what it found, for people, programs and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roadworthy.auditing.rerun import Reruns
from roadworthy.auditing.tolerances import declared
from roadworthy.core.errors import from_here
from roadworthy.report.page import environment

Status = Literal["agrees", "differs", "not checked"]
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: its name, how it ended, and what there is to say, a sentence each."""

    name: str
    status: Status
    words: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """What came of a replay. `ok` is True where nothing differs; what was not checked is named in `not_checked`.

    verdict       the status of the stored verdict
    share, seed   which part was rerun: the seed is the assessor's, so that nobody could know it before
    machine       in what this machine differs from that of the run; answers are compared to the bit where in nothing
    """

    bundle: Path
    study: str
    verdict: str
    checks: tuple[Check, ...]
    share: float
    seed: int
    machine: tuple[str, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    reruns: Reruns = field(default_factory=Reruns)

    @property
    def differences(self) -> list[str]:
        """Everything that differs, a sentence each."""
        return [words for check in self.checks if check.status == "differs" for words in check.words]

    @property
    def not_checked(self) -> list[str]:
        """Everything that was not looked at, with the reason."""
        return [words for check in self.checks if check.status == "not checked" for words in check.words]

    @property
    def ok(self) -> bool:
        """True where nothing that was checked differs."""
        return not self.differences

    @property
    def exit_code(self) -> int:
        """0 where all agrees, 1 where something differs."""
        return 0 if self.ok else 1

    def conclusion(self) -> str:
        """The result in one sentence."""
        if not self.ok:
            count = len(self.differences)
            return f"{count} difference{'s' if count != 1 else ''} found"
        lacking = len(self.not_checked)
        return "all that was checked agrees" + (f"; {lacking} not checked" if lacking else "")

    def lines(self) -> list[str]:
        """What there is to say of it, a line each; the conclusion last."""
        marks = {"agrees": "", "differs": "DIFFERS ", "not checked": "not checked "}
        lines = [f"{check.name}: {marks[check.status]}{words}" for check in self.checks for words in check.words]
        return [*lines, f"replay of {from_here(self.bundle)}: {self.conclusion()}"]

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for a file."""
        return {
            "bundle": self.bundle.name,
            "study": self.study,
            "verdict": self.verdict,
            "agrees": self.ok,
            "conclusion": self.conclusion(),
            "checks": [
                {"name": check.name, "status": check.status, "words": list(check.words)} for check in self.checks
            ],
            "share": self.share,
            "seed": self.seed,
            "same_machine_type": not self.machine,
            "machine_differences": list(self.machine),
            "compared": self.compared,
            "chunks_rerun": [chunk.to_json() for chunk in self.reruns.chunks],
            "chunks_available": self.reruns.of,
            "environment": dict(self.environment),
        }

    @property
    def compared(self) -> str:
        """How answers were compared."""
        return f"within tolerances: {declared()}" if self.machine else "to the bit"

    def to_html(self) -> str:
        """A page of its own for people."""
        return environment(HERE).get_template("replay.html.j2").render(replay=self)

    def _repr_html_(self) -> str:
        """For a notebook."""
        return environment(HERE).get_template("replay_card.html.j2").render(replay=self)
