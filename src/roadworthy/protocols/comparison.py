"""Comparison: is one model better than another on the same images, condition by condition, and where is it worse?

Paired throughout: accuracy by McNemar's test (whole objects are swapped, never frames), other metrics by a bootstrap
that draws the same objects for both. Holm's correction over all conditions of a metric keeps the chance of a single
false alarm among them at `alpha`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import HIGHER_IS_BETTER, higher_is_better
from roadworthy.protocols import classification, ood
from roadworthy.protocols.base import Evidence, StoredCase
from roadworthy.protocols.estimates import LEAST_BOOTSTRAP_GROUPS, mean_defined
from roadworthy.statistics import holm, mcnemar, mean_interval, paired_interval, paired_p, sign_flip_p

ALPHA = 0.05
MARGIN = 0.001
METRICS = ("accuracy", "auroc", "brier", "ece")
OTHER = "shown with other parameters or other code"
OOD_METRICS = ("auroc", "fpr95_in")
RESULTS = ("regression", "improvement", "no clear difference", "not compared")
SIGN_FLIP_STEPS = 50
"""Differences are rounded to this many steps of the largest, so that all flips can be counted exactly."""
COLUMNS = [
    "baseline", "model", "protocol", "condition", "level", "metric", "before", "after", "change", "lo", "hi", "p",
    "p_holm", "result", "n", "groups", "method", "reason",
]  # fmt: skip


@dataclass(frozen=True)
class System:
    """One model of one run: its name in the comparison, its name in the run, and what the run says."""

    label: str
    model: str
    evidence: Mapping[str, Evidence]
    cases: Mapping[str, Sequence[StoredCase]]


def compare(
    pairs: Sequence[tuple[System, System]],
    metrics: Sequence[str] | None = None,
    alpha: float = ALPHA,
    margin: float = MARGIN,
) -> pd.DataFrame:
    """A row per pair (baseline, model), condition and metric, regressions first, the largest loss on top.

    `change` is after - before with its 95 % interval; `result` says whether it is a regression or an improvement at a
    family-wise error of `alpha` per metric, with an interval that leaves 0 out (it holds even where one model fails on
    whole objects and the other on single frames), and larger than `margin`, the least change that matters. Conditions
    that only one of the two has are listed as not compared.
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, not {alpha}")
    if not 0 <= margin < math.inf:
        raise InputError(f"the margin must be 0 or more, not {margin}")
    wanted = list(metrics or METRICS)
    for metric in wanted:
        if metric not in HIGHER_IS_BETTER or HIGHER_IS_BETTER[metric] is None:
            known = [name for name, better in HIGHER_IS_BETTER.items() if better is not None]
            raise UnknownName("metric to compare by", metric, known)
    rows = [row for before, after in pairs for row in _rows(before, after, wanted)]
    table = pd.DataFrame(rows, columns=COLUMNS)
    for _, family in table.groupby(["protocol", "metric"]):
        table.loc[family.index, "p_holm"] = holm(family["p"].to_numpy(np.float64))
    records: list[Any] = table.to_dict("records")
    table["result"] = [_result(row, alpha, margin) for row in records]
    loss = [-row["change"] * _better(row) for row in records]
    order = table.assign(rank=table["result"].map(RESULTS.index), loss=loss)
    order = order.sort_values(["rank", "loss"], ascending=[True, False], kind="stable")
    return order.drop(columns=["rank", "loss"]).reset_index(drop=True)


def _better(row: Mapping[str, Any]) -> float:
    return 1.0 if higher_is_better(row["metric"]) else -1.0


def _result(row: Mapping[str, Any], alpha: float, margin: float) -> str:
    if math.isnan(row["p_holm"]):
        return "not compared"
    holds = row["lo"] > 0 or row["hi"] < 0
    if row["p_holm"] >= alpha or abs(row["change"]) <= margin or not holds:
        return "no clear difference"
    return "improvement" if row["change"] * _better(row) > 0 else "regression"


def _rows(before: System, after: System, metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    shared = [name for name in before.evidence if name in after.evidence]
    if not shared:
        raise InputError(f"{before.label} and {after.label} have no protocol in common")
    for name in shared:
        if name not in COMPARED:
            why = f"figures of the protocol {name} are not compared"
            yield _row(before, after, name, "all", 0, metrics[0]) | {"reason": why}
        else:
            yield from COMPARED[name](before, after, metrics)


def _row(before: System, after: System, protocol: str, condition: str, level: int, metric: str) -> dict[str, Any]:
    return {
        **dict.fromkeys(COLUMNS, math.nan),
        "baseline": before.label,
        "model": after.label,
        "protocol": protocol,
        "condition": condition,
        "level": level,
        "metric": metric,
        "result": "",
        "n": 0,
        "groups": 0,
        "method": "",
        "reason": "",
    }


def _classification_rows(before: System, after: System, metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    one, other = (system.evidence[classification.NAME] for system in (before, after))
    assert isinstance(one, classification.Evidence)
    assert isinstance(other, classification.Evidence)
    if one.ids != other.ids or one.groups != other.groups or not np.array_equal(one.labels, other.labels):
        raise InputError(f"{before.label} and {after.label} were tested on other images: they cannot be paired")
    shown = [_parameters(system, classification.NAME) for system in (before, after)]
    for condition, level in dict.fromkeys([*shown[0], *shown[1]]):
        here, there = (classification.CellKey(system.model, condition, level) for system in (before, after))
        for metric in metrics:
            row = _row(before, after, classification.NAME, condition, level, metric)
            why = _not_comparable(shown, (condition, level), before, after)
            why = why or one.failures.get(here, "") or other.failures.get(there, "")
            if why:
                yield {**row, "reason": why}
                continue
            row |= {"n": len(one.ids), "groups": one.group_count}
            yield row | _difference(one, here, other, there, metric)


def _difference(
    one: classification.Evidence,
    here: classification.CellKey,
    other: classification.Evidence,
    there: classification.CellKey,
    metric: str,
) -> dict[str, Any]:
    cell_a, cell_b = one.cells[here], other.cells[there]
    before, after = mean_defined(cell_a.values[metric]), mean_defined(cell_b.values[metric])
    if metric == "accuracy":
        repeats = [len(cell.values[metric]) for cell in (cell_a, cell_b)]
        right = [cell.per_image[metric].astype(np.float64) for cell in (cell_a, cell_b)]
        if repeats == [1, 1]:
            test = mcnemar(right[1], right[0], one.objects)
            return _numbers(before, after, test.difference, test.lo, test.hi, test.p, test.method, "")
        times = math.lcm(*repeats)
        counts = np.rint((right[1] - right[0]) * times).astype(np.int64)
        sums = np.bincount(one.objects, counts, one.group_count).astype(np.int64)
        interval = mean_interval(right[1] - right[0], one.objects, -1, 1)
        p = sign_flip_p(int(counts.sum()), np.abs(sums))
        return _numbers(before, after, after - before, interval.lo, interval.hi, p, "sign flips by group", "")
    if metric in cell_a.resampled:
        return _bootstrapped(before, after, cell_a.resampled[metric], cell_b.resampled[metric], one.group_count)
    return _bounded(before, after, cell_a, cell_b, one, metric)


def _bounded(
    before: float,
    after: float,
    cell_a: classification.Cell,
    cell_b: classification.Cell,
    evidence: classification.Evidence,
    metric: str,
) -> dict[str, Any]:
    """A mean over images of a bounded value: its paired differences flip their signs object by object."""
    name, factor = ("brier", 1 / len(evidence.class_names)) if metric == "brier_mean" else (metric, 1.0)
    differences = (cell_b.per_image[name].astype(np.float64) - cell_a.per_image[name]) * factor
    room = 2.0 * factor if name == "brier" else 1.0
    interval = mean_interval(differences.clip(-room, room), evidence.objects, -room, room)
    sums = np.bincount(evidence.objects, differences, evidence.group_count)
    fine = np.rint(sums / max(float(np.abs(sums).max()), 1e-300) * SIGN_FLIP_STEPS).astype(np.int64)
    p = sign_flip_p(int(fine.sum()), np.abs(fine)) if fine.any() else 1.0
    return _numbers(before, after, after - before, interval.lo, interval.hi, p, "sign flips by group", "")


def _bootstrapped(before: float, after: float, a: Any, b: Any, groups: int) -> dict[str, Any]:
    if groups < LEAST_BOOTSTRAP_GROUPS:
        why = f"a bootstrap bound needs {LEAST_BOOTSTRAP_GROUPS} objects, not {groups}"
        return {"before": before, "after": after, "change": after - before, "reason": why}
    if math.isnan(before) or math.isnan(after):
        return {"before": before, "after": after, "reason": "undefined for one of the two"}
    lo, hi, why = paired_interval(after, before, b, a, groups)
    p, reason = paired_p(after, before, b, a, groups)
    if np.array_equal(a, b, equal_nan=True) and before == after:
        lo, hi, p, why, reason = 0.0, 0.0, 1.0, "", ""
    return _numbers(before, after, after - before, lo, hi, p, "paired group bootstrap", why or reason)


def _numbers(
    before: float, after: float, change: float, lo: float, hi: float, p: float, method: str, reason: str
) -> dict[str, Any]:
    numbers = {"before": before, "after": after, "change": change, "lo": lo, "hi": hi, "p": p}
    return {**numbers, "method": method, "reason": reason}


def _ood_rows(before: System, after: System, metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    one, other = (system.evidence[ood.NAME] for system in (before, after))
    assert isinstance(one, ood.Evidence)
    assert isinstance(other, ood.Evidence)
    sets = [
        {key.ood_set: key for key in found.keys if key.model == system.model}
        for found, system in ((one, before), (other, after))
    ]
    codes = [
        {case.tags.get("ood_set"): case.stimulus.code for case in system.cases[ood.NAME] if case.system == system.model}
        for system in (before, after)
    ]
    for name in dict.fromkeys([*sets[0], *sets[1]]):
        for metric in OOD_METRICS:
            key = sets[0].get(name) or sets[1][name]
            row = _row(before, after, ood.NAME, name, key.level, metric)
            missing = [system.label for system, known in ((before, sets[0]), (after, sets[1])) if name not in known]
            if missing:
                yield {**row, "reason": f"{missing[0]} was not shown it"}
                continue
            if codes[0].get(name) != codes[1].get(name):
                yield {**row, "reason": OTHER}
                continue
            a, b = one.results.get(sets[0][name]), other.results.get(sets[1][name])
            if a is None or b is None:
                yield {**row, "reason": "case failed"}
                continue
            values = mean_defined(a.values[metric]), mean_defined(b.values[metric])
            row |= {"n": a.n, "groups": a.groups}
            if a.members != b.members:
                yield {**row, "before": values[0], "after": values[1], "reason": "other images: they cannot be paired"}
                continue
            yield row | _bootstrapped(*values, a.resampled[metric], b.resampled[metric], a.groups)


COMPARED: Mapping[str, Callable[[System, System, Sequence[str]], Iterator[dict[str, Any]]]] = {
    classification.NAME: _classification_rows,
    ood.NAME: _ood_rows,
}
"""What compares two systems, by protocol."""


def _parameters(system: System, protocol: str) -> dict[tuple[str, int], str]:
    """What the model was shown, by condition and level: the data, the parameters of the shift and its code.

    The model that an attack was made against does not count: each is attacked itself, in the same way.
    """
    shown = [case.stimulus for case in system.cases[protocol] if case.system == system.model]
    own = [{name: value for name, value in s.parameters.items() if name != "attacked"} for s in shown]
    return {(s.name, s.level): f"{s.data} {sorted(p.items())} {s.code}" for s, p in zip(shown, own, strict=True)}


def _not_comparable(
    shown: Sequence[Mapping[tuple[str, int], str]], key: tuple[str, int], before: System, after: System
) -> str:
    for system, known in zip((before, after), shown, strict=True):
        if key not in known:
            return f"{system.label} was not shown it"
    return "" if shown[0][key] == shown[1][key] else OTHER


def comparison_lines(table: pd.DataFrame, alpha: float = ALPHA) -> list[str]:
    """The comparison in a few lines of text: counts, then every regression, then every improvement."""
    counts = {name: int((table["result"] == name).sum()) for name in RESULTS}
    lines = [
        f"{counts['regression']} regressions, {counts['improvement']} improvements, "
        f"{counts['no clear difference']} without clear difference, {counts['not compared']} not compared "
        f"(chance of any false alarm per metric: {alpha:.0%})"
    ]
    for result in ("regression", "improvement"):
        for row in table[table["result"] == result].to_dict("records"):
            condition = row["condition"] if not row["level"] else f"{row['condition']} level {row['level']}"
            lines.append(
                f"{result:<12} {row['model']} against {row['baseline']}: {row['metric']} {condition}: "
                f"{row['before']:.4f} -> {row['after']:.4f}, change {row['change']:+.4f} "
                f"[{row['lo']:+.4f}, {row['hi']:+.4f}], p {row['p_holm']:.2g}"
            )
    reasons = table.loc[table["result"] == "not compared", "reason"].value_counts()
    return lines + [f"not compared {count}: {reason}" for reason, count in reasons.items()]
