"""What answers are put in order by: what the model says, or in its place the score of a monitor on it.

The monitor is planned beside the model's cases and read with them.

A monitor keeps something of each image (`MonitorOn`); its score follows from that, and from what it learned on
undisturbed validation data, where it learns anything there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, RoadworthyError, UnknownName, foreign_code, is_the_machine_s
from roadworthy.core.roles import Model
from roadworthy.core.types import LOG_ODDS
from roadworthy.engine.monitor_systems import REPRESENTATION, MonitorFit, MonitorOn, undisturbed
from roadworthy.engine.plan import Bench, PlannedCase
from roadworthy.engine.readouts import Readouts
from roadworthy.monitors import Aim, FittedMonitor, Monitor
from roadworthy.monitors.checks import checked_arrays
from roadworthy.monitors.kinds import find_kind
from roadworthy.monitors.learned import Learned
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.served import check_served, distinct_monitors, source_words

MONITOR, SHOWN, HELD_OUT, FITTING = "monitor", "shown", "held_out", "fitting"
"""Labels of cases: the monitor that answers, what it is shown, and among that held-out data, and what it learns from
where that is not held-out data too."""


def scoring_data(label: str | None, monitors: Mapping[str, Monitor]) -> frozenset[str]:
    """The data besides the test data that the score of a monitor needs: `train`, `validation`; none without a label."""
    monitor = None if label is None else monitors.get(label)
    roles = {"train": monitor is not None and monitor.learns, "validation": monitor is not None and monitor.tunes}
    return frozenset(role for role, needed in roles.items() if needed)


def scored_cases(protocol: str, label: str | None, bench: Bench, cases: Sequence[PlannedCase]) -> Sequence[PlannedCase]:
    """The cases of models, and beside each the monitor on that model, shown the same; without a label as they are.

    A monitor that learns something from validation data is shown that too, undisturbed: the half that is fitted on,
    where thresholds are found on the other.
    """
    if label is None:
        return cases
    monitor = _checked(protocol, label, bench)
    watchers: dict[int, MonitorOn] = {}
    taught = {id(planned.system) for planned in cases if planned.labels.get(SHOWN) == HELD_OUT}
    scored, apart = list(cases), bench.fitting is not None
    learned_from = bench.fitting if apart else bench.validation
    for planned in cases:
        model = planned.system
        assert isinstance(model, Model)
        if id(model) not in watchers:
            watchers[id(model)] = _planned_monitor(label, monitor, model, bench)
            if monitor.tunes and (apart or id(model) not in taught) and learned_from is not None:
                showing, shown = undisturbed(bench, learned_from), FITTING if apart else HELD_OUT
                teacher = replace(planned, showing=showing, labels={SHOWN: shown}, refused="")
                scored.append(_beside(teacher, watchers[id(model)], bench))
        scored.append(_beside(planned, watchers[id(model)], bench))
    return scored


def _beside(planned: PlannedCase, watcher: MonitorOn, bench: Bench) -> PlannedCase:
    """The monitor on the model of a planned case, shown the same."""
    labels = {
        MONITOR: watcher.name,
        "model": planned.case.system,
        "detector": watcher.fit.monitor.name,
        "artifact": watcher.fit.recipe.hash,
    }
    labels |= {SHOWN: planned.labels[SHOWN]} if SHOWN in planned.labels else {}
    return bench.case(planned.showing, watcher, protocol=planned.protocol, labels=labels, refused=planned.refused)


def _checked(protocol: str, label: str, bench: Bench) -> Monitor:
    """The monitor of that label; one that cannot score image by image, or that the source leaves out, is refused."""
    if label not in bench.monitors:
        raise UnknownName(f"monitor as the score of {protocol}", label, bench.monitors)
    monitor: Monitor = distinct_monitors(protocol, {label: bench.monitors[label]}, lambda *_: None)[label]
    left_out = bench.section.leave_out if bench.section is not None else ()
    why = ""
    if {label, monitor.name} & {*left_out}:
        why = f"{source_words(bench)} leaves it out (leave_out)"
    elif monitor.learns_from_outliers:
        why = "it learns from outliers, and it is given none here"
    elif monitor.is_sequential:
        why = "it decides by the images before, so that an image by itself has no score"
    if why:
        raise InputError(f"monitor {label} cannot be the score of {protocol}: {why}")
    for model in bench.models.values():
        check_served(bench, model, {label: monitor})
    return monitor


def _planned_monitor(label: str, monitor: Monitor, model: Model, bench: Bench) -> MonitorOn:
    try:
        with foreign_code("", is_the_machine_s):
            watcher = MonitorOn(label, MonitorFit(monitor, model, bench))
            _ = watcher.fit.recipe.hash
            return watcher
    except RoadworthyError as error:
        raise InputError(f"{source_words(bench)}: monitor {label} cannot be planned: {error}") from None


def with_scores(cases: Sequence[StoredCase]) -> list[StoredCase]:
    """The cases of models; where a monitor was planned beside them, their readouts have its score as `certainty`.

    Such readouts have no log-odds, which would speak of the model.
    """
    watched = {_shown_to(case): case for case in cases if MONITOR in case.labels}
    models = [case for case in cases if MONITOR not in case.labels]
    if not watched:
        return models
    taught_by = {
        case.labels["artifact"]: case
        for shown in (HELD_OUT, FITTING)
        for case in watched.values()
        if case.labels.get(SHOWN) == shown
    }

    @cache
    def opened(artifact: str) -> tuple[FittedMonitor, Learned]:
        watcher = next(case for case in watched.values() if case.labels["artifact"] == artifact)
        fitted = FittedMonitor.load(watcher.artifact(artifact), kind=find_kind(watcher.labels["detector"]))
        if not fitted.monitor.tunes:
            return fitted, Learned()
        rows = taught_by[artifact].columns(REPRESENTATION)[REPRESENTATION]
        with foreign_code("", is_the_machine_s):
            tuned = fitted.monitor.tune(rows, None, Aim(), fitted.state)
            return fitted, checked_arrays(fitted.monitor, tuned, "tune")

    def load(case: StoredCase, watcher: StoredCase) -> Readouts:
        readouts, columns = case.load(), watcher.columns(REPRESENTATION, "id")
        if tuple(columns["id"].tolist()) != readouts.ids:
            raise InputError("the monitor was shown other images than the model: run the study again")
        fitted, rule = opened(watcher.labels["artifact"])
        with foreign_code("", is_the_machine_s):
            scores = fitted.scores(columns[REPRESENTATION], rule)
            return replace(readouts, classified=replace(readouts.answers, log_odds=None), certainty=scores)

    def scored(case: StoredCase) -> StoredCase:
        watcher = watched[_shown_to(case)]
        teacher = taught_by.get(watcher.labels["artifact"])
        lost = [own for own in (watcher, teacher) if own is not None and own.failure]
        failure = f"monitor {lost[0].labels[MONITOR]}: {lost[0].failure}" if lost else ""
        return replace(case, failure=case.failure or failure, load=partial(load, case, watcher))

    return [scored(case) for case in models]


def own_scores(readouts: Sequence[Readouts]) -> tuple[str, list[NDArray[np.float64]]]:
    """What orders the answers of one model in all of these readouts alike: its name, and the scores (n,) of each.

    `certainty`   a certainty of the model's own, where all have one
    `log_odds`    log p - log(1 - p) of the largest probability p, where all have it. It also stands for a certainty
                  that is nothing else than that probability, as the one of several passes or members is
    `confidence`  the largest probability itself, which is 1 for all very sure answers in single precision
    """
    certain = [own.certainty for own in readouts if own.certainty is not None]
    is_own = len(certain) == len(readouts)
    odds = [own.answers.log_odds for own in readouts if own.answers.log_odds is not None]
    if len(odds) == len(readouts):
        pairs = zip(certain, readouts, strict=False)
        if not is_own or all(np.array_equal(own, other.answers.confidence) for own, other in pairs):
            return LOG_ODDS, odds
    return ("certainty", certain) if is_own else ("confidence", [own.answers.confidence for own in readouts])


def _shown_to(case: StoredCase) -> tuple[str, str]:
    """The model that a case belongs to, and what is shown."""
    return case.labels.get("model", case.system), case.stimulus.hash
