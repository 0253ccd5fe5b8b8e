"""Which monitor the evidence of an OD-test supports: one paragraph, from the stored tables alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.protocols.od_test.facts import OdTestFacts
from roadworthy.protocols.od_test.findings import Findings
from roadworthy.protocols.od_test.loading import load_od_test
from roadworthy.protocols.od_test.names import ACCURACY, ALL, NAME, SETTLED, TWO_DATASETS
from roadworthy.protocols.od_test.words import (
    beats_guessing,
    better,
    cost_text,
    metric_words,
    open_against,
    some_of,
    unstable_reason,
)
from roadworthy.report.facts import bounded, load_facts
from roadworthy.report.words import NO_BREAK, listing, number, plural, whole
from roadworthy.statistics import Estimate

WITHIN = 0.01
"""A calibration with fewer images is as good where its mean is within one point of accuracy."""
WORST_SETS = 2


def choose(run: Path, source: str | None = None) -> str:
    """What a run's OD-test supports, in one paragraph: over all its sources, or at one of them.

    A run without an OD-test, or without the source, is an `InputError`.
    """
    facts = load_facts(run)
    if NAME not in facts.record.protocols:
        raise InputError(
            f"{run} holds no OD-test, so it says nothing of monitors to choose from: run a study with {NAME}"
        )
    test = load_od_test(run, facts)
    paragraph = " ".join(Choice(test if source is None else at_source(test, source), source).sentences())
    return paragraph.replace(NO_BREAK, " ")


def at_source(test: OdTestFacts, name: str) -> OdTestFacts:
    """What one source says by itself: its means in place of those over all. Their stability is not known."""
    known = {source.name: source for source in test.sources}
    models = [source.name for source in test.sources if source.domain == name]
    if name not in known and len(models) > 1:
        raise InputError(f"source {name} has several models: name one of {listing(models)}")
    if name not in known and not models:
        raise UnknownName("source", name, known)
    source = known.get(name) or known[models[0]]
    means = {(ALL, *key[1:]): cell for key, cell in test.means.items() if key[0] == source.name}
    return replace(test, sources=(source,), means=means, findings=replace(test.findings, order=None))


@dataclass(frozen=True)
class Choice:
    """The evidence that a choice rests on; `source` is the one that was asked for, or None for all."""

    test: OdTestFacts
    source: str | None = None

    def sentences(self) -> Iterator[str]:
        """What the evidence supports, sentence by sentence."""
        if not self.test.ranked:
            yield from self._no_choice()
            return
        yield self._leader()
        if self._is_better_than_guessing:
            yield from self._others()
            yield from self._promise()
            yield from self._images()
            yield from self._worst()
        yield from self._limits()

    @property
    def _findings(self) -> Findings:
        return self.test.findings

    @property
    def _label(self) -> str:
        """The monitor that leads."""
        return self.test.ranked[0].label

    @property
    def _is_better_than_guessing(self) -> bool:
        return beats_guessing(self.test.mean(self._label, self.test.judged), self.test)

    def _no_choice(self) -> Iterator[str]:
        """That there is nothing to choose from, and why."""
        expected = plural(self.test.expected, "triple")
        yield f"The evidence supports no monitor: none has a value for each of {expected}{self._where}."
        reasons = {method.label: method.why for method in self.test.methods} | self.test.failures
        if reasons:
            label, why = next(iter(reasons.items()))
            yield f"The first of {whole(len(reasons))}, {label}: {why.rstrip('.')}."

    @property
    def _where(self) -> str:
        return f" at {self.source}" if self.source else ""

    def _leader(self) -> str:
        """Which monitor leads, with its mean."""
        test, judged = self.test, self.test.judged
        count = len(test.ranked)
        field = (
            f"Of {whole(count)} ranked monitors {self._label} leads" if count > 1 else f"{self._label} alone is ranked"
        )
        mean = test.mean(self._label, judged)
        figure = f"mean {metric_words(judged).label.lower()} of {bounded(judged, mean)}"
        start = f"{field}{self._where}, with a {figure} over {plural(mean.n, 'triple')} of source, D_v and D_t"
        guess = number(judged, test.chance)
        if self._is_better_than_guessing:
            return f"{start}; guessing gives {guess}."
        no_better = f"not clearly {better(judged)} than the {guess} of guessing"
        return f"{start}, but that is {no_better}: the evidence supports no monitor."

    @cached_property
    def _open(self) -> list[str] | None:
        """The monitors that cannot be told from the leader; None where the run does not say."""
        order = self._findings.order
        if order is not None:
            return open_against(self.test, order, self._label) if order.is_known else None
        if self.source is None:
            return None
        judged, lead = self.test.judged, self.test.mean(self._label, self.test.judged)
        return [m.label for m in self.test.ranked[1:] if lead.lo <= self.test.mean(m.label, judged).value <= lead.hi]

    def _others(self) -> Iterator[str]:
        """Who cannot be told from the leader, and which of these is the cheapest."""
        if len(self.test.ranked) == 1:
            return
        if self._open is None:
            if self._findings.order is not None:
                yield f"How stable that order is cannot be said: {unstable_reason(self._findings.order)}."
            return
        open_ones = some_of(self._open)
        if self.source is not None:
            lies = "lies" if len(self._open) == 1 else "lie"
            yield f"{open_ones} {lies} within its interval." if self._open else "No other lies within its interval."
        elif self._open:
            yield (
                f"{open_ones} cannot be told apart from it: where sources, models and sets are drawn anew, either "
                f"order comes up in more than {100 * (1 - SETTLED):.0f} % of the draws."
            )
        else:
            yield f"It is before every other in {100 * SETTLED:.0f} % or more of new draws of sources, models and sets."
        if not self._open:
            return
        cheapest = self._cheapest
        if cheapest is not None:
            label, own, leader = cheapest
            if label == self._label:
                yield f"Of these it is the cheapest, with {own} ms per image."
            else:
                yield f"The cheapest of these is {label}, with {own} ms per image where {self._label} takes {leader}."

    @cached_property
    def _cheapest(self) -> tuple[str, str, str] | None:
        """The cheapest of those that cannot be told apart, its milliseconds per image and those of the leader."""
        costs = {
            row.monitor: 1000 * row.seconds_per_image
            for row in self.test.monitor_costs
            if row.source in (ALL, *(source.name for source in self.test.sources)) and row.seconds_per_image > 0
        }
        known = {label: costs[label] for label in (self._label, *(self._open or ())) if label in costs}
        if self._label not in known:
            return None
        label = min(known, key=lambda name: known[name])
        return label, cost_text(known[label]), cost_text(known[self._label])

    @property
    def _spoken_of(self) -> list[str]:
        """The leader, and the cheapest where that is another."""
        return [*dict.fromkeys([self._label, *([self._cheapest[0]] if self._cheapest else [])])]

    def _promise(self) -> Iterator[str]:
        """What two data sets would have promised."""
        figures_of = {label: self.promised(label) for label in self._spoken_of}
        known = {label: cell for label, cell in figures_of.items() if not cell.missing}
        if known:
            figures = listing([f"{number(ACCURACY, cell.value)} for {label}" for label, cell in known.items()])
            yield f"A test with the same kind of outliers as in the calibration would have promised {figures}."

    def promised(self, label: str) -> Estimate:
        """The mean accuracy of a monitor with two data sets."""
        gaps = self._findings.gaps
        if gaps is None:
            return Estimate(math.nan)
        if self.source is None:
            return gaps.mean(label, TWO_DATASETS)
        return gaps.mean_at(label, [source.name for source in self.test.sources])

    def _images(self) -> Iterator[str]:
        """How many images of D_v a calibration needs."""
        sizes = self._findings.sizes
        if sizes is None:
            return
        at = ALL if self.source is None else self.test.sources[0].name
        needed = {label: sizes.needed(label, WITHIN, at) for label in self._spoken_of}
        known = {label: images for label, images in needed.items() if images is not None}
        if known:
            needs = [
                f"{label} needs {'all ' if images == max(sizes.of(label, at)) else ''}{plural(images, 'image')} of D_v"
                for label, images in known.items()
            ]
            yield f"To come within one point of the accuracy that all of D_v gives, {listing(needs)}."

    def _worst(self) -> Iterator[str]:
        """On which sets the leader fails worst."""
        by_set = self._by_test_set()
        worst = sorted(by_set, key=lambda name: sum(by_set[name]) / len(by_set[name]))[:WORST_SETS]
        if not worst:
            return
        named = listing([f"{name} ({number(ACCURACY, sum(by_set[name]) / len(by_set[name]))})" for name in worst])
        values = [value for own in by_set.values() for value in own]
        poor = sum(value <= self.test.guesses[ACCURACY] for value in values)
        rest = f", and no better than guessing in {whole(poor)} of {plural(len(values), 'triple')}" if poor else ""
        yield f"{self._label} is worst on {named}{rest}."

    def _by_test_set(self) -> dict[str, list[float]]:
        """The accuracies of the leader by test set, at the sources that count."""
        values: dict[str, list[float]] = {}
        for (source, monitor, valid_set, test_set), cell in self.test.triples.items():
            counted = {source.name for source in self.test.sources_of(self._label, valid_set)}
            if monitor == self._label and source in counted and not cell.missing:
                values.setdefault(test_set, []).append(cell.value)
        return values

    def _limits(self) -> Iterator[str]:
        """What the evidence does not say."""
        test = self.test
        sources = {source.domain for source in test.counted}
        models = f" with {plural(len(test.counted), 'model')}" if len(test.counted) > len(sources) else ""
        sets = {name for source in test.counted for _, *pair in source.pairs for name in pair}
        yield (
            f"All this describes {plural(len(sources), 'source')}{models} and {plural(len(sets), 'outlier set')}: D_v "
            "and D_t were chosen, not drawn, so that nothing is said of outliers of other kinds."
        )
        weak = [source.name for source in test.sources if source.undertrained]
        if weak:
            counts = "count all the same, as there are no others" if len(weak) == len(test.sources) else "do not count"
            yield f"Networks below their floor {counts}: {some_of(weak)}."
        unranked = [method.label for method in test.methods if method.rank is None]
        if unranked:
            yield f"Not ranked, as they lack triples or are undertrained: {some_of(unranked)}."
        if None in (self._findings.gaps, self._findings.sizes):
            yield (
                "The run has no tables on two data sets, stability or the size of D_v, as an earlier version made it: "
                "run its study again to have them."
            )
