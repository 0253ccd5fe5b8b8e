"""Comparison: is one model better than another on the same images, condition by condition, and where is it worse?

Paired throughout: accuracy by McNemar's test (whole objects are swapped, never frames), other metrics by a bootstrap
that draws the same objects for both. Holm's correction over all conditions of a metric keeps the chance of a single
false alarm among them at `alpha`. Metrics have scales of their own: changes are ranked within a metric, never across.
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
from roadworthy.protocols.estimates import LEAST_BOOTSTRAP_GROUPS, RESAMPLES, mean_defined
from roadworthy.statistics import holm, mcnemar, mean_interval, p_text, paired_interval, paired_p, sign_flip_p
from roadworthy.statistics.paired import (
    BELOW_MARGIN,
    IMPROVEMENT,
    NO_DIFFERENCE,
    NOT_COMPARED,
    REGRESSION,
    RESULTS,
)

ALPHA = 0.05
MARGIN = 0.001
METRICS: Mapping[str, Sequence[str]] = {
    classification.NAME: ("accuracy", "auroc", "brier", "ece"),
    ood.NAME: ("auroc", "fpr95_in"),
}
"""What is compared unless other metrics are asked for, by protocol."""
PROTOCOLS: Mapping[str, classification.Classification | ood.OutOfDistribution] = {
    classification.NAME: classification.Classification(),
    ood.NAME: ood.OutOfDistribution(),
}
"""The protocols whose figures are compared."""
KNOWN_METRICS: Mapping[str, Sequence[str]] = {
    classification.NAME: tuple(name for name, better in HIGHER_IS_BETTER.items() if better is not None),
    ood.NAME: ood.METRICS,
}
"""What can be compared, by protocol, in the order of the table: accuracy first."""
TESTED_BY_FLIPS = ("accuracy", "brier", "brier_mean")
"""Metrics of classification whose p value comes from counting; that of all others comes from resamples."""
OTHER = "shown with other parameters or other code"
SHORT_RESULTS = {REGRESSION: REGRESSION, IMPROVEMENT: IMPROVEMENT, BELOW_MARGIN: "below margin"}
"""The results that are changes, the most important first, as a line of text starts with them."""
MOST_LINES = 10
"""Changes that are listed in text unless all are asked for."""
MOST_RESAMPLES = 50_000
"""A question that takes more is refused: it would take hours with thousands of images."""
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


Choice = tuple[int, str]
"""A model to compare: the position of its run among the runs, and its name there."""


def choose_pairs(
    runs: Sequence[str], names: Sequence[Sequence[str]], models: Sequence[str] | None = None
) -> list[tuple[Choice, Choice]]:
    """Which model is compared with which: (baseline, model) pairs of runs with models of these names.

    `models` names two, the baseline first: of a single run both are taken from it; of several the baseline is one of
    the first run and the other one of each later run. Without it, later models of a single run are compared with its
    first, and models of later runs with the first run's model of the same name, or its only one with their only one.

    >>> choose_pairs(["old"], [["a", "b", "c"]], ["b", "c"])
    [((0, 'b'), (0, 'c'))]
    >>> choose_pairs(["old", "new"], [["a", "b"], ["b"]])
    [((0, 'b'), (1, 'b'))]
    """
    if not runs:
        raise InputError("name at least one run to compare")
    if models is not None:
        return _named_pairs(runs, names, models)
    if len(runs) == 1 and len(names[0]) == 1:
        raise InputError(f"{runs[0]} holds one model only: name a second run to compare it with")
    if len(runs) == 1:
        return [((0, names[0][0]), (0, other)) for other in names[0][1:]]
    pairs = []
    for place, others in list(enumerate(names))[1:]:
        for model in others:
            baseline = names[0][0] if len(names[0]) == len(others) == 1 else model
            if baseline not in names[0]:
                raise InputError(
                    f"{model} of {runs[place]} has no counterpart in {runs[0]}, whose models are "
                    f"{', '.join(sorted(names[0]))}: name the two with `models=`"
                )
            pairs.append(((0, baseline), (place, model)))
    return pairs


def _named_pairs(
    runs: Sequence[str], names: Sequence[Sequence[str]], models: Sequence[str]
) -> list[tuple[Choice, Choice]]:
    if isinstance(models, str) or len(models) != 2:
        raise InputError(f"two models are compared, the baseline first: models cannot be {models!r}")
    baseline, model = models
    if len(runs) == 1 and baseline == model:
        raise InputError(f"{model} of {runs[0]} would be compared with itself: name two models, or a second run")
    pairs = [((0, baseline), (place, model)) for place in (range(1, len(runs)) if len(runs) > 1 else [0])]
    for place, name in [choice for pair in pairs for choice in pair]:
        if name not in names[place]:
            raise InputError(f"{runs[place]}: {UnknownName('model', name, names[place])}")
    return pairs


def check_question(metrics: Sequence[str] | None, alpha: float, margin: float) -> None:
    """Raise an `InputError` for a metric that cannot be compared, or an impossible alpha or margin."""
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, not {alpha}")
    if not 0 <= margin < math.inf:
        raise InputError(f"the margin must be 0 or more, not {margin}")
    known = {name for names in KNOWN_METRICS.values() for name in names}
    for metric in metrics or ():
        if metric not in known:
            raise UnknownName("metric to compare by", metric, known)


def load_systems(
    choices: Sequence[tuple[Choice, Choice]],
    labels: Sequence[str],
    cases: Sequence[Mapping[str, Sequence[StoredCase]]],
    class_names: Sequence[Sequence[str]],
    metrics: Sequence[str] | None = None,
    alpha: float = ALPHA,
    workers: int = 1,
) -> list[tuple[System, System]]:
    """The chosen pairs with what their stored cases say; of each run: its label, cases by protocol, class names.

    Objects are resampled by one seed for all, so that runs are paired, and as often as `needed_resamples` says.
    """
    chosen = {choice for pair in choices for choice in pair}
    kept = [
        {name: [case for case in stored if (run, case.system) in chosen] for name, stored in own.items()}
        for run, own in enumerate(cases)
    ]
    resamples = {name: needed_resamples(choices, kept, name, metrics, alpha) for name in PROTOCOLS}
    evidence = [
        {
            name: PROTOCOLS[name].evidence(stored, names, seed=0, workers=workers, resamples=resamples[name])
            for name, stored in own.items()
            if name in PROTOCOLS
        }
        for own, names in zip(kept, class_names, strict=True)
    ]
    systems = {(run, model): System(f"{labels[run]}/{model}", model, evidence[run], kept[run]) for run, model in chosen}
    return [(systems[before], systems[after]) for before, after in choices]


def needed_resamples(
    choices: Sequence[tuple[Choice, Choice]],
    cases: Sequence[Mapping[str, Sequence[StoredCase]]],
    protocol: str,
    metrics: Sequence[str] | None,
    alpha: float,
) -> int:
    """So many resamples that Holm's correction leaves room for a clear result: 2 m / alpha for m tests of a metric.

    The smallest p value of B resamples is 1 / (B + 1), and Holm multiplies it by up to m.
    """
    drawn = [name for name in _metrics(protocol, metrics) if protocol == ood.NAME or name not in TESTED_BY_FLIPS]
    tests = 0
    for pair in choices:
        shown = [case for run, model in pair for case in cases[run].get(protocol, ()) if case.system == model]
        tests += len({(case.stimulus.name, case.stimulus.level) for case in shown})
    needed = math.ceil(2 * tests / alpha) if drawn else 0
    if needed > MOST_RESAMPLES:
        raise InputError(
            f"alpha {alpha:g} over {tests} conditions takes {needed} resamples for {drawn[0]}, more than "
            f"{MOST_RESAMPLES}: choose a larger `alpha=`, fewer runs, or accuracy alone, which is tested without them"
        )
    return max(RESAMPLES, needed)


def _metrics(protocol: str, asked: Sequence[str] | None) -> list[str]:
    """The metrics to compare under a protocol: those asked for that it has, or the usual ones."""
    if not asked:
        return list(METRICS[protocol])
    return [name for name in dict.fromkeys(asked) if name in KNOWN_METRICS[protocol]]


def compare(
    pairs: Sequence[tuple[System, System]],
    metrics: Sequence[str] | None = None,
    alpha: float = ALPHA,
    margin: float = MARGIN,
) -> pd.DataFrame:
    """A row per pair (baseline, model), condition and metric.

    `change` is after - before with its 95 % interval. It is clear where it is significant at a family-wise error of
    `alpha` per metric and its interval leaves 0 out (it holds even where one model fails on whole objects and the other
    on single frames). `result` calls a clear change a regression or an improvement where it is larger than `margin`,
    the least change that matters, in the metric's own unit; else 'clear, but below the margin'. Conditions that only
    one of the two has are listed as not compared.

    Regressions come first, then the other results as in `RESULTS`; within each, accuracy first, then metric by metric;
    within a metric, the largest loss (of improvements, the largest gain) on top.
    """
    check_question(metrics, alpha, margin)
    rows = [row for before, after in pairs for row in _rows(before, after, metrics)]
    if not rows:
        raise InputError(f"{', '.join(metrics or ())}: not a metric of the protocols that the runs have in common")
    table = pd.DataFrame(rows, columns=COLUMNS)
    for _, family in table.groupby(["protocol", "metric"]):
        table.loc[family.index, "p_holm"] = holm(family["p"].to_numpy(np.float64))
    records: list[Any] = table.to_dict("records")
    table["result"] = results = [_result(row, alpha, margin) for row in records]
    losses = [-row["change"] * _better(row) for row in records]
    families = _families(table)
    order = table.assign(
        rank=table["result"].map(RESULTS.index),
        family=[families.index((row["protocol"], row["metric"])) for row in records],
        first=[-loss if result == IMPROVEMENT else loss for result, loss in zip(results, losses, strict=True)],
    )
    order = order.sort_values(["rank", "family", "first"], ascending=[True, True, False], kind="stable")
    return order[COLUMNS].reset_index(drop=True)


def _families(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Protocols and metrics whose changes share a scale and a correction: accuracy first, then as they are known."""
    present = dict.fromkeys(zip(table["protocol"], table["metric"], strict=True))
    known = [(protocol, metric) for protocol, metrics in KNOWN_METRICS.items() for metric in metrics]
    return [family for family in known if family in present] + [family for family in present if family not in known]


def _better(row: Mapping[str, Any]) -> float:
    return 1.0 if higher_is_better(row["metric"]) else -1.0


def _result(row: Mapping[str, Any], alpha: float, margin: float) -> str:
    if math.isnan(row["p_holm"]):
        return NOT_COMPARED
    holds = row["lo"] > 0 or row["hi"] < 0
    if row["p_holm"] >= alpha or not holds:
        return NO_DIFFERENCE
    if abs(row["change"]) <= margin:
        return BELOW_MARGIN
    return IMPROVEMENT if row["change"] * _better(row) > 0 else REGRESSION


def _rows(before: System, after: System, metrics: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    shared = [name for name in before.cases if name in after.cases]
    if not shared:
        raise InputError(f"{before.label} and {after.label} have no protocol in common")
    for name in shared:
        if name not in COMPARED:
            why = f"figures of the protocol {name} are not compared"
            yield _row(before, after, name, "all", 0, (metrics or ["accuracy"])[0]) | {"reason": why}
        else:
            yield from COMPARED[name](before, after, _metrics(name, metrics))


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
        {
            case.labels.get("ood_set"): case.stimulus.code
            for case in system.cases[ood.NAME]
            if case.system == system.model
        }
        for system in (before, after)
    ]
    for name in dict.fromkeys([*sets[0], *sets[1]]):
        for metric in metrics:
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


def comparison_lines(
    table: pd.DataFrame, alpha: float = ALPHA, margin: float = MARGIN, most: int | None = MOST_LINES
) -> list[str]:
    """The comparison in a few lines of text: counts in all and by metric, then at most so many changes, as sorted."""
    families = _families(table)
    lines = [f"{_counts(table)} (margin {margin:g}; chance of any false alarm per metric: {100 * alpha:g} %)"]
    for protocol, metric in families if len(families) > 1 else ():
        rows = table[(table["protocol"] == protocol) & (table["metric"] == metric)]
        place = "" if protocol == classification.NAME else f" ({protocol})"
        lines.append(f"  {metric}{place}: {_counts(rows, zeros=False)}")
    changes = table[table["result"].isin(SHORT_RESULTS)].to_dict("records")
    lines += [_change_line(row) for row in changes[:most]]
    if most is not None and len(changes) > most:
        lines.append(
            f"{len(changes) - most} more changes: `all=True` lists them here, `out='FILE'` writes every row as CSV, "
            "`html='FILE'` makes a page"
        )
    reasons = table.loc[table["result"] == NOT_COMPARED, "reason"].value_counts()
    return lines + [f"not compared {count}: {reason}" for reason, count in reasons.items()]


def _counts(table: pd.DataFrame, *, zeros: bool = True) -> str:
    counts = {name: int((table["result"] == name).sum()) for name in RESULTS}
    plurals = {REGRESSION: "regressions", IMPROVEMENT: "improvements"}
    return "; ".join(
        f"{count} {plurals.get(name, name) if count != 1 else name}" for name, count in counts.items() if count or zeros
    )


def _change_line(row: Mapping[Any, Any]) -> str:
    condition = row["condition"] if not row["level"] else f"{row['condition']} level {row['level']}"
    return (
        f"{SHORT_RESULTS[row['result']]:<12} {row['model']} against {row['baseline']}: {row['metric']} {condition}: "
        f"{row['before']:.4f} -> {row['after']:.4f}, change {row['change']:+.4f} "
        f"[{row['lo']:+.4f}, {row['hi']:+.4f}], p {p_text(row['p_holm'])}"
    )
