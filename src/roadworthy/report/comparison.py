"""The page of a comparison: regressions first, metric by metric, and each change by condition and level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import pandas as pd

from roadworthy.core.grouping import grouped
from roadworthy.core.severity import plain_severity
from roadworthy.metrics import Metric, metrics_of
from roadworthy.report import drawing
from roadworthy.report.drawing import MUTED, Charts, Square, View, layout_of, names_axis, plain, text, view
from roadworthy.report.facts import Condition
from roadworthy.report.words import p_value, signed, words_of
from roadworthy.statistics.paired import BELOW_MARGIN, IMPROVEMENT, NOT_COMPARED, REGRESSION, RESULTS, PairedChange

MARKS = {REGRESSION: "▼", IMPROVEMENT: "▲", BELOW_MARGIN: "≈"}
WORSE_TO_BETTER = ((0.0, "#ea7320"), (0.25, "#fbc873"), (0.5, "#ffffff"), (0.75, "#a9cbe6"), (1.0, "#5f9fd0"))
NOT_STORED = ("columns", "confidence")
"""What a table says otherwise, or of all rows alike: intervals are at 95 %."""
LEAST_SCALE = 0.02
"""The change at which colours are strongest where no change is larger."""


@dataclass(frozen=True, kw_only=True)
class Change(PairedChange):
    """A row of the table.

    `subject` says what the conditions of its protocol are (outliers); without it they are shifts at levels.
    """

    baseline: str
    model: str
    protocol: str
    subject: str
    p_holm: float
    result: str

    @property
    def where(self) -> str:
        """The condition in words."""
        return f"{self.subject} {self.condition}" if self.subject else str(Condition(self.condition, self.level))

    @property
    def family(self) -> str:
        """The metric in words, and what it is one of: changes of one family share a scale."""
        if not self.metric:
            return f"protocol {self.protocol}"
        return f"{self.measured.label}{f' of {self.subject}' if self.subject else ''}"

    @property
    def measured(self) -> Metric:
        """The metric, as its protocol means it."""
        return words_of(self.metric, metrics_of(self.protocol))

    @property
    def gain(self) -> float:
        """The change with the sign that makes more better."""
        return self.change if self.measured.higher_is_better else -self.change


@dataclass(frozen=True)
class Pair:
    """A model against its baseline under one protocol."""

    baseline: str
    model: str
    protocol: str
    changes: tuple[Change, ...]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The metrics compared, by name."""
        return tuple(sorted({change.metric for change in self.changes}))


@dataclass(frozen=True)
class Compared:
    """A whole comparison, in the order of its table: by result, then by metric, then the largest loss on top."""

    changes: tuple[Change, ...]

    def of(self, result: str) -> tuple[Change, ...]:
        """The changes with one result."""
        return tuple(change for change in self.changes if change.result == result)

    def by_metric(self, result: str) -> tuple[tuple[str, tuple[Change, ...]], ...]:
        """The changes with one result by metric, each with its name in words: metrics share no scale."""
        return tuple(grouped((change.family, change) for change in self.of(result)).items())

    @cached_property
    def counts(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """How many changes have each of `RESULTS`, by metric in words, protocol by protocol."""
        families = dict.fromkeys(c.family for c in sorted(self.changes, key=lambda c: (c.protocol, c.metric)))
        results = Counter((change.family, change.result) for change in self.changes)
        return tuple((family, tuple(results[family, result] for result in RESULTS)) for family in families)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every model against its baseline, protocol by protocol; without protocols that offer no comparison."""
        pairs = grouped(((c.baseline, c.model, c.protocol), c) for c in self.changes if c.metric)
        return tuple(Pair(*names, pairs[names]) for names in sorted(pairs))

    @cached_property
    def reasons(self) -> tuple[tuple[str, int], ...]:
        """Why some were not compared, and how many each."""
        return tuple(Counter(change.reason for change in self.of(NOT_COMPARED)).items())


def load_comparison(table: pd.DataFrame) -> Compared:
    """The rows of a comparison table.

    >>> load_comparison(pd.DataFrame()).changes
    ()
    """
    kinds: dict[str, Any] = {"str": str, "float": float, "int": int}
    stored = [field for field in fields(Change) if field.name not in NOT_STORED]
    makers = {field.name: kinds[str(field.type)] for field in stored} | {"level": plain_severity}
    return Compared(
        tuple(Change(**{name: make(row[name]) for name, make in makers.items()}) for row in table.to_dict("records"))
    )


def sentences(comparison: Compared, alpha: float, margin: float) -> list[str]:
    """What came out, and what the words mean, in sentences."""
    worse = comparison.by_metric(REGRESSION)
    lines = [_largest_loss(name, changes[0]) for name, changes in worse]
    lines.append(
        f"A change is clear where chance does not explain it: its 95 % interval leaves 0 out and p after Holm's "
        f"correction is below {alpha:g}, so that the chance of any false alarm among all conditions of a metric is at "
        f"most {100 * alpha:g} %. Both models saw the same images. Intervals are 95 % each, one by one."
    )
    lines.append(
        f"The margin, {margin:g}, is the least change that matters, in the unit of each metric: for accuracy it is "
        f"{100 * margin:g} percentage points. A clear change is a regression or an improvement where it is larger than "
        f"the margin; otherwise it is called '{BELOW_MARGIN}', and no release fails for it."
    )
    if not worse:
        lines.append("That none was found does not show that there is none: small losses need many objects to be seen.")
    return lines


def _largest_loss(name: str, most: Change) -> str:
    return (
        f"The largest loss of {name}: {most.model} on {most.where}, {signed(most.change)} "
        f"[{signed(most.lo)}, {signed(most.hi)}]."
    )


def charts(comparison: Compared) -> Charts:
    """A heat map of changes for every pair and protocol, a view per metric."""
    return {
        f"changes-{index}": [heat_map(pair, metric) for metric in pair.metrics]
        for index, pair in enumerate(comparison.pairs)
    }


def heat_map(pair: Pair, metric: str) -> View:
    """The change of a metric by condition and level: orange is worse, blue is better, marks are beyond chance."""
    changes = [change for change in pair.changes if change.metric == metric]
    by_level = not pair.changes[0].subject
    cells = {(change.condition, change.level if by_level else 0): change for change in changes}
    rows = sorted({name for name, _ in cells}, key=lambda name: (_lowest(changes, name), name))
    columns = sorted({column for _, column in cells})
    squares = [[_square(cells.get((row, column))) for column in columns] for row in rows]
    known = [abs(change.change) for change in changes if not math.isnan(change.change)]
    scale = max([*known, LEAST_SCALE])
    layout = layout_of(height=70 + 30 * len(rows), margin={"l": 8, "r": 8, "t": 34, "b": 8})
    title = {"text": "level" if by_level else "", "font": {"size": 11, "color": MUTED}, "standoff": 4}
    levels = [column or "clean" for column in columns] if by_level else ["change"]
    layout["xaxis"] = names_axis(levels, side="top", title=title)
    names = ["undisturbed" if row == "none" else row for row in rows]
    layout["yaxis"] = names_axis(names, 18, autorange="reversed")
    return view(changes[0].measured.label, drawing.heat_map(squares, -scale, scale, WORSE_TO_BETTER), layout)


def _lowest(changes: Sequence[Change], condition: str) -> float:
    gains = [change.gain for change in changes if change.condition == condition]
    return min((gain for gain in gains if not math.isnan(gain)), default=math.inf)


def _square(change: Change | None) -> Square:
    """A change as a square of a heat map, grey where it has no value; an empty one where there is none."""
    if change is None:
        return Square(None, "", "")
    lines, label = [f"<b>{text(change.where)}</b>", text(change.result)], "n/a"
    if not math.isnan(change.change):
        label = f"{signed(round(change.change, 3))[:6]} {MARKS.get(change.result, '')}".strip()
        lines.append(f"change {signed(change.change)}, 95 % {signed(change.lo)} to {signed(change.hi)}")
        lines.append(f"p {p_value(change.p_holm)} after Holm")
    if change.reason:
        lines.append(text(change.reason))
    return Square(plain(change.gain), label, "<br>".join(lines), math.isnan(change.change))
