"""What changed against the run of an earlier version, as the report and the terminal say it: regressions first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from roadworthy.core.record import BaselineRecord, RunRecord
from roadworthy.report.comparison import Change, Compared, load_comparison
from roadworthy.report.facts import REPORT
from roadworthy.report.reading import has_table, read_arrow
from roadworthy.report.words import listing, number, plural, signed
from roadworthy.statistics.paired import BELOW_MARGIN, IMPROVEMENT, NO_DIFFERENCE, NOT_COMPARED, REGRESSION

TABLE = "baseline_changes"
NAMED = 3
"""So many regressions are named in the sentence; all are in the section."""
MOST_LINES = 10
"""So many are listed on the terminal."""


@dataclass(frozen=True)
class BaselineFacts:
    """The baseline as the record names it, and how the models of the run differ from its models.

    `link` leads from the run's folder to the report of the baseline; it is empty where that report is not at hand.
    """

    record: BaselineRecord
    compared: Compared

    @property
    def link(self) -> str:
        """The address of the baseline's report from the folder of the run; empty where its record names none."""
        return f"{quote(self.record.beside)}/{REPORT}" if self.record.beside else ""

    @property
    def regressions(self) -> tuple[Change, ...]:
        """The clear losses, the largest of each metric first."""
        return self.compared.of(REGRESSION)

    @property
    def status(self) -> str:
        """As which verdict it is coloured: a regression is bad news, no comparison is no news."""
        if self.regressions:
            return "fail"
        return "inconclusive" if len(self.compared.of(NOT_COMPARED)) == len(self.compared.changes) else "pass"

    @property
    def heading(self) -> str:
        """How many regressions there are, or that nothing was compared."""
        if self.status == "inconclusive":
            return "not compared"
        return plural(len(self.regressions), "regression") if self.regressions else "no regression"

    @property
    def named(self) -> str:
        """The first regressions in words: those of accuracy lead, the largest on top; empty where there is none."""
        words = "; ".join(change_words(change) for change in self.regressions[:NAMED])
        more = len(self.regressions) - NAMED
        return (words + (f"; {more} more" if more > 0 else "") + ".") if words else ""

    @property
    def rest(self) -> str:
        """How many conditions and metrics changed otherwise; empty where nothing was compared."""
        if self.status == "inconclusive":
            return ""
        unclear = sum(len(self.compared.of(result)) for result in (NO_DIFFERENCE, BELOW_MARGIN))
        counts = [plural(len(self.compared.of(IMPROVEMENT)), "improvement"), f"{unclear} without a change that matters"]
        if missing := len(self.compared.of(NOT_COMPARED)):
            counts.append(f"{missing} not compared")
        return f"{listing(counts)}."

    @property
    def taken(self) -> str:
        """What was taken over from it, and what of it is damaged."""
        counts = [(self.record.artifacts, "artifact"), (self.record.cases, "case")]
        parts = [plural(count, name) for count, name in counts if count]
        words = (
            f"Taken over from it, since unchanged: {listing(parts)}." if parts else "Nothing was taken over from it."
        )
        if self.record.damaged:
            words += f" Damaged there and made again: {listing(self.record.damaged)}."
        return words

    @property
    def obstacle(self) -> str:
        """Why the two, or some models, were not compared; empty where all were."""
        reasons = [self.record.not_compared]
        if self.status == "inconclusive":
            reasons += [reason for reason, _ in self.compared.reasons]
        named = "; ".join(filter(None, reasons))
        return f"Not compared: {named}." if named else ""

    def lines(self) -> list[str]:
        """What the terminal says: regressions first, each on a line."""
        parts = [f"compared with {self.record.run}: {self.heading}.", self.rest, self.obstacle]
        lines = [" ".join(filter(None, parts))]
        lines += [f"{REGRESSION}: {change.model}: {change_words(change)}" for change in self.regressions[:MOST_LINES]]
        if len(self.regressions) > MOST_LINES:
            lines.append(f"{len(self.regressions) - MOST_LINES} more regressions stand in the report")
        return [*lines, self.taken]


def change_words(change: Change) -> str:
    """A change in words: condition, metric, and by how much, from what to what."""
    before, after = (number(change.measured, value) for value in (change.before, change.after))
    size = f"{100 * change.change:+.1f} points" if change.measured.percent else signed(change.change)
    return f"{change.where}: {change.measured.label.lower()} {size.replace('-', '−')}, {before} to {after}"


def load_baseline(run: Path, record: RunRecord) -> BaselineFacts | None:
    """What a run says of its baseline; None where its study names none."""
    if record.baseline is None:
        return None
    table = read_arrow(run, TABLE, None).to_pandas() if has_table(run, TABLE) else None
    compared = load_comparison(table) if table is not None else Compared(())
    return BaselineFacts(record.baseline, compared)
