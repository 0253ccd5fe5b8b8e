"""Collecting the indicators of a run: what its protocols can watch, and every criterion that passes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_file
from roadworthy.core.record import RECORD
from roadworthy.core.showing import card, table
from roadworthy.indicators.indicator import Indicator, Rule, make_indicators
from roadworthy.metrics import Metric, find_metric
from roadworthy.plugins import GivenPlugins
from roadworthy.protocols import Protocol, protocol_of
from roadworthy.protocols.in_service import Watchable
from roadworthy.stored import Run, open_run
from roadworthy.stored_evidence import load_evidence, stored_parts, stored_settings
from roadworthy.verdict.judge import Finding, Judged

FORMAT, VERSION = "roadworthy indicators", 1


@dataclass(frozen=True)
class Indicators:
    """The indicators of a run.

    run_sha256    of run.json, which says which run was approved;  verdict: its status
    not_watched   criteria that give no indicator, with the reason
    """

    study: str
    verdict: str
    run_sha256: str
    rule: Rule
    indicators: tuple[Indicator, ...]
    not_watched: Mapping[str, str]

    def of(self, *, needs_labels: bool) -> list[Indicator]:
        """Those that can be counted as they are, or those that need labelled samples."""
        return [own for own in self.indicators if own.needs_labels is needs_labels]

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for indicators.json."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "study": self.study,
            "verdict": self.verdict,
            "run_sha256": self.run_sha256,
            "false_alarm_level": self.rule.level,
            "excess": self.rule.excess,
            "power": self.rule.power,
            "indicators": [own.to_json() for own in self.indicators],
            "not_watched": dict(self.not_watched),
        }

    def _repr_html_(self) -> str:
        """For a notebook."""
        bounded = [own for own in self.indicators if own.watchable.side is not None]
        rows = [(own.id, "yes" if own.needs_labels else "no", own.sentence()) for own in bounded]
        others = len(self.indicators) - len(bounded)
        more = [f"{others} more are recorded without a bound"] if others else []
        more += [f"criterion {name} is not watched: {why}" for name, why in self.not_watched.items()]
        head = ("indicator", "needs labels", "bound and alarm")
        return card(f"Indicators of {self.study} (verdict {self.verdict})", table(head, rows), *more)


def collect_indicators(
    run: str | os.PathLike[str],
    *,
    level: float = 0.001,
    excess: float = 2.0,
    power: float = 0.95,
    plugins: GivenPlugins = (),
    trust: bool = False,
) -> Indicators:
    """The approved bounds of a finished run as indicators for service, each with an alarm limit.

    level   the chance of a false alarm per window while the bound holds
    excess  so many times the tolerated share is to be seen with a chance of `power`: that decides the size of a window

    Criteria that pass are watched by their threshold, rejection and certainty by their bounds on the test data.
    """
    for name, value, low, high in (("level", level, 0, 1), ("power", power, 0, 1), ("excess", excess, 1, math.inf)):
        if not low < value < high:
            raise InputError(f"`{name}=` lies between {low} and {high:g}, not {value!r}")
    opened = open_run(os.fspath(run), plugins=plugins, trust=trust)
    opened.folder.check_finished()
    judged, record = opened.verdict(), opened.record
    watchables, not_watched = list[Watchable](), dict[str, str]()
    for finding in judged.findings:
        if finding.status != "pass":
            not_watched[finding.criterion.id] = f"it is {finding.status}: nothing was approved"
            continue
        watchables += _of_criterion(opened, finding)
    for evidence in load_evidence(opened.folder, record).values():
        watchables += evidence.in_service()
    indicators = make_indicators(watchables, Rule(level, excess, power))
    sha = digest_file(opened.path / RECORD)
    return Indicators(record.study, judged.status, sha, Rule(level, excess, power), tuple(indicators), not_watched)


def _of_criterion(run: Run, finding: Finding) -> Iterator[Watchable]:
    """What a criterion that passes asks to be watched: a figure per condition."""
    record, criterion = run.record, finding.criterion
    protocol = protocol_of(criterion, stored_parts(run.folder, record))
    metric = find_metric(criterion.metric, protocol.metrics_of(stored_settings(record)[protocol.name]))
    classes = max(len(source.data.class_names) for source in record.sources.values())
    for row in finding.rows:
        yield _of_row(finding, row, protocol, metric, classes)


def _of_row(finding: Finding, row: Judged, protocol: Protocol, metric: Metric, classes: int) -> Watchable:
    criterion, where = finding.criterion, dict(row.measurement.where)
    note = f"hazard: {criterion.hazard}" if criterion.hazard else ""
    if several := where.pop("of", ""):
        note = f"{note}; the bound holds for each of {several}".removeprefix("; ")
    free = metric.name in protocol.label_free
    conditions = ", ".join(f"{key} {value}" for key, value in where.items())
    labelled = "" if free else "labelled "
    return Watchable(
        metric.name,
        {"criterion": criterion.id, **where},
        adds=f"{'1 or 0' if metric.proportion else 'its own value'} ({metric.label}: {metric.sentence.rstrip('.')})",
        images=f"{labelled}images of this condition ({conditions}), one of each object",
        measured=row.measurement.estimate,
        side="at_least" if criterion.sign > 0 else "at_most",
        bound=criterion.threshold,
        basis=f"criterion {criterion.id}, which passes",
        needs_labels=not free,
        reason=_why_no_alarm(metric, classes),
        note=note,
    )


def _why_no_alarm(metric: Metric, classes: int) -> str:
    """Why a metric cannot be counted image by image; empty where it can."""
    if metric.drop_of is not None:
        return "it compares two sets of images: run the study on labelled samples of the fleet instead"
    if not (metric.proportion or metric.of_images) or tuple(metric.limits(classes)) != (0.0, 1.0):
        return "it is not a mean over images from 0 to 1: run the study on labelled samples of the fleet instead"
    return ""
