"""Which cases of classification stop early: those of which every criterion is a bound of a mean over images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roadworthy.core.errors import InputError
from roadworthy.core.grouping import grouped
from roadworthy.core.types import UNDISTURBED
from roadworthy.engine.plan import PlannedCase
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols.base import KnownCase, Part, Planned, without_source
from roadworthy.protocols.classification.settings import Settings, metrics_of
from roadworthy.protocols.classification.stopped import (
    BoundedMetric,
    Context,
    Looks,
    Watched,
    criterion_key,
)
from roadworthy.protocols.classification.table_specs import CELL
from roadworthy.protocols.classification.tables import CellKey, select
from roadworthy.protocols.condition_slices import asked_slices, is_of_data
from roadworthy.verdict import Criterion


@dataclass(frozen=True)
class Undecided:
    """The rule of one case: it goes on until every criterion that speaks of it is decided."""

    criteria: tuple[tuple[Watched, BoundedMetric], ...]
    looks: Looks

    def __call__(self, readouts: Readouts) -> bool:
        """Whether these first answers decide all of them."""
        answers = readouts.answers
        for watched, bounded in self.criteria:
            if bounded.whole.measure(answers).reason:
                return False
            values = bounded.per_image(answers)
            if bounded.decide(watched, bounded.bets(values, readouts.groups, self.looks)) == "inconclusive":
                return False
        return True


def why_no_mean(criterion: Criterion, metric: Metric) -> str:
    """Why a criterion cannot be judged while answers come in; empty where it can."""
    if not {*criterion.where} <= {"protocol", "source", *CELL}:
        return "it speaks of some of the images"
    if metric.drop_of:
        return f"{metric.name} compares two cases"
    if criterion.against:
        return "it is judged against a baseline"
    if criterion.over == "pooled":
        return "its conditions are pooled"
    if metric.of_images is None:
        return f"{metric.name} is no mean over images"
    return "" if metric.mean_over_objects else f"the range of {metric.name} is too wide for bounds of a mean"


Cell = tuple[str, CellKey]
"""A cell of a source."""


def looked_at(
    sources: Mapping[str, Planned],
    matching: Callable[[Criterion], Sequence[str]],
    criteria: Sequence[Criterion],
    settings: Settings,
    asked_by_others: Mapping[str, str],
) -> dict[str, Planned]:
    """The cases with rules to stop; `matching` gives the sources that a criterion speaks of.

    asked_by_others   by the hash of a case, another protocol that needs it in full
    """
    if settings.human:
        raise InputError("`until_decided=True` may stop before images that people answered: leave out human, or this")
    metrics = metrics_of(settings)
    known = {source: Counter(map(key_of, _shown(planned))) for source, planned in sources.items()}
    chosen: dict[str, list[Cell]] = {
        c.id: [(source, key) for source in matching(c) for key in _cells(c, sources[source], known[source])]
        for c in criteria
    }
    reasons = {c.id: why_no_mean(c, find_metric(c.metric, metrics)) for c in criteria}
    for c in criteria:
        if any(known[source][key] > 1 for source, key in chosen[c.id]):
            reasons[c.id] = reasons[c.id] or "repeats are averaged"
    needed = {
        (source, key_of(case)): f"protocol {asked_by_others[case.case.hash]}"
        for source, planned in sources.items()
        for case in _shown(planned)
        if case.case.hash in asked_by_others
    }
    needed |= {
        cell: f"criterion {c.id}"
        for c in criteria
        if reasons[c.id]
        for cell in _with_baseline(chosen[c.id], c, metrics)
    }
    for c in criteria:
        if all(cell in needed for cell in chosen[c.id]):
            reasons[c.id] = reasons[c.id] or f"{needed[chosen[c.id][0]]} needs the same cases in full"
    watched = {
        c.id: Watched(criterion=c, conditions=len(chosen[c.id]) if c.over == "worst" else 1)
        for c in criteria
        if not reasons[c.id]
    }
    speaking = grouped((cell, one) for name, one in watched.items() for cell in chosen[name] if cell not in needed)
    in_full = {criterion_key(c): reasons[c.id] for c in criteria if reasons[c.id]}
    return {
        source: _with_rules(
            planned,
            {key: some for (own, key), some in speaking.items() if own == source},
            watched,
            in_full,
            metrics,
        )
        for source, planned in sources.items()
    }


def _shown(planned: Planned) -> list[PlannedCase]:
    """The cases that are shown to models: all but the one that holds the conditions of the data."""
    return [case for case in planned.cases if not is_of_data(case)]


def _cells(criterion: Criterion, planned: Planned, known: Iterable[CellKey]) -> list[CellKey]:
    """The cells of a source that a criterion speaks of, whichever of their images it means."""
    assert isinstance(planned.context, Context)
    return select(known, asked_slices(planned.context, without_source(criterion), CELL).criterion)


def _with_baseline(cells: Sequence[Cell], criterion: Criterion, metrics: Sequence[Metric]) -> list[Cell]:
    """The cells that a criterion reads: a drop reads undisturbed data too."""
    if not find_metric(criterion.metric, metrics).drop_of:
        return [*cells]
    return [*cells, *((source, CellKey(key.model, UNDISTURBED, 0)) for source, key in cells)]


def key_of(planned: PlannedCase) -> CellKey:
    """The cell of a planned case."""
    return CellKey.of(KnownCase(planned.case.system, planned.case.stimulus))


def _with_rules(
    planned: Planned,
    speaking: Mapping[CellKey, Sequence[Watched]],
    watched: Mapping[str, Watched],
    in_full: Mapping[str, str],
    metrics: Sequence[Metric],
) -> Planned:
    """What is asked of one source, with a rule for every case that criteria are watching."""
    cases = _shown(planned)
    data = cases[0].showing.data
    looks = Looks(
        images=len(data),
        largest_group=max(Counter(data.groups).values()),
        part_images=cases[0].chunk,
        criteria=dict(watched),
        watched={
            p.case.hash: [one.criterion.id for one in speaking[key_of(p)]] for p in cases if key_of(p) in speaking
        },
        in_full=dict(in_full),
    )
    ruled = []
    for case in planned.cases:
        speaking_of_it = () if is_of_data(case) else speaking.get(key_of(case), ())
        criteria = tuple(
            (one, BoundedMetric.of(find_metric(one.criterion.metric, metrics), metrics, len(data.class_names)))
            for one in speaking_of_it
        )
        ruled.append(replace(case, stop=Undecided(criteria, looks)) if criteria else case)
    return Planned(ruled, planned.context.model_copy(update={"looks": looks}))


def parts_of(sources: Mapping[str, Planned]) -> list[Part]:
    """What is planned, as criteria are matched with it."""
    return [
        Part(
            source,
            [KnownCase(p.case.system, p.case.stimulus, p.labels) for p in planned.cases],
            planned.context,
            planned.cases[0].showing.data.class_names if planned.cases else (),
        )
        for source, planned in sources.items()
    ]
