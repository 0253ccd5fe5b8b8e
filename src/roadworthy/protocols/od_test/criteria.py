"""Criteria of OD-test: what a criterion may ask for, and what is measured for it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import find_metric, unknown_metric
from roadworthy.protocols.od_test import metrics
from roadworthy.protocols.od_test.means import mean_columns, once_per_domain
from roadworthy.protocols.od_test.names import DISTANCE, FAR, METRICS, NAME, NEAR, TRIPLE
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import no_estimate
from roadworthy.verdict import Criterion, Measurement


def dropped_sources(sources: Mapping[str, bool], criterion: Criterion) -> list[str]:
    """The sources that a criterion's mean leaves out, of sources by name with whether they are undertrained.

    These are the undertrained ones, unless the criterion can speak of no other.
    """
    meant = [name for name in sources if matches({"source": name}, criterion)]
    weak = [name for name in meant if sources[name]]
    return weak if len(weak) < len(meant) else []


def measure(
    rows: Sequence[Mapping[str, Any]], criterion: Criterion, confidence: float, dropped: Collection[str] = ()
) -> list[Measurement]:
    """What matches a criterion among rows of `evaluate` bounded with that confidence.

    `over: pooled` is the mean of the matching triples, without those of the `dropped` sources and, where there are
    several sources, of fits below their floor; a monitor that asks no model counts once per source. Its independent
    unit is the pair of source and test set, whatever the models.
    """
    chosen = [row for row in rows if row["metric"] == criterion.metric and matches(row, criterion)]
    if not chosen:
        raise InputError(f"criterion {criterion.id} matches no triple of this run: see the columns of table {NAME}")
    if criterion.over != "pooled":
        return [
            Measurement(
                {key: row[key] for key in TRIPLE},
                Estimate(**{key: row[key] for key in ("value", "lo", "hi", "n", "groups", "method", "reason")}),
                proportion=find_metric(criterion.metric, metrics.METRICS).proportion,
            )
            for row in chosen
        ]
    left = sorted({row["source"] for row in chosen} & set(dropped))
    chosen = [row for row in chosen if row["source"] not in left]
    trained = [row for row in chosen if not row["weak_fit"]]
    if trained and len({row["source"] for row in chosen}) > 1:
        left += sorted({f"{row['monitor']} at {row['source']}" for row in chosen if row["weak_fit"]})
        chosen = trained
    chosen = once_per_domain(chosen)
    noted = {"without undertrained": ", ".join(left)} if left else {}
    lost = [row["reason"] for row in chosen if math.isnan(row["value"])]
    if lost or not chosen:
        reason = "undertrained sources do not count where others are there: name such a source to judge it alone"
        if lost:
            reason = f"{len(lost)} of {len(chosen)} triples have no value, the first: {lost[0]}"
        return [Measurement(noted, no_estimate(reason))]
    mean = mean_columns(chosen, confidence=confidence)
    return [
        Measurement(
            {"triples": len(chosen), **noted},
            Estimate(
                **{key: mean[key] for key in ("value", "lo", "hi", "reason")},
                n=sum(row["n"] for row in chosen),
                groups=mean["clusters"],
                method="Student's t over pairs of source and test set",
            ),
            unit="pairs of source and test set",
        )
    ]


def check_criterion(criterion: Criterion, subject_columns: Sequence[str] = ("source",)) -> None:
    """Refuse a criterion that speaks of what an OD-test does not measure; subjects are told apart by these columns."""
    if criterion.metric not in METRICS:
        raise InputError(f"criterion {criterion.id}: {unknown_metric(criterion.metric, METRICS, metrics.METRICS)}")
    known = (*subject_columns, *TRIPLE[1:], DISTANCE)
    for key in criterion.where:
        if key not in {*known, "protocol"}:
            raise InputError(f"criterion {criterion.id}: {UnknownName('condition', str(key), known)}")
    for key, names in (("protocol", (NAME,)), (DISTANCE, (NEAR, FAR))):
        _check_names(criterion, key, names)


def check_triples(criterion: Criterion, triples: Sequence[Mapping[str, str]]) -> None:
    """Refuse a criterion that names a source, set or monitor that is not there, or matches none of these triples."""
    for key in TRIPLE:
        _check_names(criterion, key, list(dict.fromkeys(triple[key] for triple in triples)))
    if not any(matches(triple, criterion) for triple in triples):
        raise InputError(
            f"criterion {criterion.id} matches no triple: no source meets all that it names under where together"
        )


def _check_names(criterion: Criterion, key: str, known: Sequence[str]) -> None:
    wanted = criterion.where.get(key)
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if wanted is not None and name not in known:
            raise InputError(f"criterion {criterion.id}: {UnknownName(key, str(name), known)}")


def matches(row: Mapping[str, Any], criterion: Criterion) -> bool:
    """Whether a criterion can speak of a row; what the row does not say is left open."""
    return all(
        wanted is None or row[key] in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in criterion.where.items()
        if key in row
    )
