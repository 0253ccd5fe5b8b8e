"""Comparison: is one model better than another on the same images, condition by condition, and where is it worse?

Paired throughout: accuracy by McNemar's test (whole objects are swapped, never frames), other metrics by a bootstrap
that draws the same objects for both. Holm's correction over all conditions of a metric keeps the chance of a single
false alarm among them at `alpha`. Metrics have scales of their own: changes are ranked within a metric, never across.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.grouping import grouped
from roadworthy.metrics import METRICS, Metric, find_metric, metrics_of, unknown_metric
from roadworthy.protocols import PROTOCOLS, find_protocol
from roadworthy.protocols.base import Compared, Part, Protocol, StoredCase
from roadworthy.protocols.changes import of_same_cases
from roadworthy.protocols.table_specs import CHANGE_COLUMNS
from roadworthy.statistics import holm, p_text, paired
from roadworthy.statistics.estimates import RESAMPLES
from roadworthy.statistics.paired import BELOW_MARGIN, IMPROVEMENT, NO_DIFFERENCE, NOT_COMPARED, REGRESSION, RESULTS

ALPHA = 0.05
MARGIN = 0.001
SHORT_RESULTS = {REGRESSION: REGRESSION, IMPROVEMENT: IMPROVEMENT, BELOW_MARGIN: "below margin"}
"""The results that are changes, the most important first, as a line of text starts with them."""
MOST_LINES = 10
"""Changes that are listed in text unless all are asked for."""
MOST_RESAMPLES = 50_000
"""A question that takes more is refused: it would take hours with thousands of images."""
NO_METRIC = ""
"""The metric of the row of a protocol that offers no comparison."""
FURTHER = "further_metrics"
COLUMNS = [*CHANGE_COLUMNS]

Choice = tuple[int, str]
"""A model to compare: the position of its run among the runs, and its name there."""


def choose_pairs(
    runs: Sequence[str], names: Sequence[Sequence[str]], models: Sequence[str] | None = None, several: bool = False
) -> list[tuple[Choice, Choice]]:
    """Which model is compared with which: (baseline, model) pairs of runs with models of these names.

    `models` names two, the baseline first: of a single run both are taken from it; of several the baseline is one of
    the first run and the other one of each later run. Without it, later models of a single run are compared with its
    first, and models of later runs with the first run's model of the same name, or its only one with their only one.
    Where a single run has `several` sources, with which its names begin, that is done source by source.

    >>> choose_pairs(["old"], [["a", "b", "c"]], ["b", "c"])
    [((0, 'b'), (0, 'c'))]
    >>> choose_pairs(["old", "new"], [["a", "b"], ["b"]])
    [((0, 'b'), (1, 'b'))]
    """
    if not runs:
        raise InputError("name at least one run to compare")
    if models is not None:
        return _named_pairs(runs, names, models)
    pairs = []
    if len(runs) == 1:
        by_source = grouped((name.partition("/")[0] if several else "", name) for name in names[0])
        pairs = [((0, own[0]), (0, other)) for own in by_source.values() for other in own[1:]]
        if not pairs:
            one = "one model of each source only" if len(names[0]) > 1 else "one model only"
            raise InputError(f"{runs[0]} holds {one}: name a second run to compare it with")
    for run_index, others in list(enumerate(names))[1:]:
        for model in others:
            baseline = names[0][0] if len(names[0]) == len(others) == 1 else model
            if baseline not in names[0]:
                raise InputError(
                    f"{model} of {runs[run_index]} has no counterpart in {runs[0]}, whose models are "
                    f"{', '.join(sorted(names[0]))}: name the two with `models=`"
                )
            pairs.append(((0, baseline), (run_index, model)))
    return pairs


def _named_pairs(
    runs: Sequence[str], names: Sequence[Sequence[str]], models: Sequence[str]
) -> list[tuple[Choice, Choice]]:
    if isinstance(models, str) or len(models) != 2:
        raise InputError(f"two models are compared, the baseline first: models cannot be {models!r}")
    baseline, model = models
    if len(runs) == 1 and baseline == model:
        raise InputError(f"{model} of {runs[0]} would be compared with itself: name two models, or a second run")
    others = range(1, len(runs)) if len(runs) > 1 else [0]
    pairs = [((0, baseline), (run_index, model)) for run_index in others]
    for run_index, name in [choice for pair in pairs for choice in pair]:
        if name not in names[run_index]:
            raise InputError(f"{runs[run_index]}: {UnknownName('model', name, names[run_index])}")
    return pairs


def check_question(metrics: Sequence[str] | None, alpha: float, margin: float) -> None:
    """Raise an `InputError` for a metric that cannot be compared, or an impossible alpha or margin."""
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, not {alpha}")
    if not 0 <= margin < math.inf:
        raise InputError(f"the margin must be 0 or more, not {margin}")
    known = {name for _, name in _known_families()} | {
        name for name in METRICS if METRICS.get(name).higher_is_better is not None
    }
    for metric in metrics or ():
        if metric not in known:
            raise _refusal(metric, known)


def _refusal(name: str, known: Iterable[str]) -> InputError:
    """Why runs cannot be compared by a metric of this name."""
    protocols = [find_protocol(protocol) for protocol in PROTOCOLS]
    owners = [protocol for protocol in protocols if name in {metric.name for metric in protocol.metrics}]
    own = [metric for protocol in owners for metric in protocol.metrics]
    if (owners or name in METRICS) and find_metric(name, own).higher_is_better is None:
        return InputError(f"runs cannot be compared by {name}: neither more nor less of it is better")
    if owners:
        what = "compares runs by other metrics only" if owners[0].compared else "offers no comparison"
        return InputError(
            f"runs cannot be compared by {name}: the protocol {owners[0].name}, which measures it, {what}"
        )
    return unknown_metric(
        name, known, [metric for protocol in protocols for metric in protocol.metrics], "metric to compare by"
    )


def load_systems(
    choices: Sequence[tuple[Choice, Choice]],
    labels: Sequence[str],
    parts: Sequence[Mapping[str, Sequence[Part]]],
    settings: Sequence[Mapping[str, Any]],
    metrics: Sequence[str] | None = None,
    alpha: float = ALPHA,
    workers: int = 1,
) -> list[tuple[Compared, Compared]]:
    """The chosen pairs with what their stored cases say; of each run: its label, and by protocol parts and settings.

    Objects are resampled by one seed for all, so that runs are paired, and as often as `needed_resamples` says. A model
    of one of several sources is compared by that source alone.
    """
    chosen = {choice: _of_choice(choice, parts[choice[0]]) for pair in choices for choice in pair}
    cases = {choice: {name: part.cases for name, part in own.items()} for choice, own in chosen.items()}
    protocols = [protocol for name in dict.fromkeys(chain(*chosen.values())) if (protocol := _compared(name))]
    asked = {p: _metrics(p, metrics, [own[p.name] for own in settings if p.name in own]) for p in protocols}
    resamples = {p: needed_resamples(choices, cases, p, asked[p], alpha) for p in protocols}
    systems = {}
    for (run, name), own in chosen.items():
        evidence = {
            protocol.name: protocol.evidence_of(
                [own[protocol.name]], settings[run][protocol.name], seed=0, workers=workers, resamples=number
            )
            for protocol, number in resamples.items()
            if protocol.name in own
        }
        source, model = _source_and_model(name, parts[run])
        label = f"{labels[run]}/{model}"
        contexts = {protocol: part.context for protocol, part in own.items()}
        systems[run, name] = Compared(label, model, evidence, cases[run, name], source, settings[run], contexts)
    return [(systems[before], systems[after]) for before, after in choices]


def _source_and_model(name: str, parts: Mapping[str, Sequence[Part]]) -> tuple[str, str]:
    """The source of a model, empty where the run has one only, and its name there; a source's name has no slash."""
    several = any(part.source for own in parts.values() for part in own)
    source, _, model = name.partition("/") if several else ("", "", name)
    return source, model


def _of_choice(choice: Choice, parts: Mapping[str, Sequence[Part]]) -> dict[str, Part]:
    """What each protocol has of one model, as if its source were the only one."""
    source, model = _source_and_model(choice[1], parts)
    parts_by_protocol = {}
    for protocol, own in parts.items():
        for part in own:
            kept = [case for case in part.cases if case.labels.get("model", case.system) == model]
            if kept and part.source == source:
                parts_by_protocol[protocol] = replace(part, source="", cases=kept)
    return parts_by_protocol


def needed_resamples(
    choices: Sequence[tuple[Choice, Choice]],
    cases: Mapping[Choice, Mapping[str, Sequence[StoredCase]]],
    protocol: Protocol,
    metrics: Sequence[Metric],
    alpha: float,
) -> int:
    """So many resamples that Holm's correction leaves room for a clear result: 2 m / alpha for m tests of a metric.

    The smallest p value of B resamples is 1 / (B + 1), and Holm multiplies it by up to m.
    """
    drawn = [metric.name for metric in metrics if not metric.mean_over_objects and not metric.ranked]
    tests = 0
    for pair in choices:
        shown = [case for choice in pair for case in cases[choice].get(protocol.name, ())]
        tests += len({(case.stimulus.name, case.stimulus.level) for case in shown})
    needed = math.ceil(2 * tests / alpha) if drawn else 0
    if needed > MOST_RESAMPLES:
        raise InputError(
            f"alpha {alpha:g} over {tests} conditions takes {needed} resamples for {drawn[0]}, more than "
            f"{MOST_RESAMPLES}: choose a larger `alpha=`, fewer runs, or accuracy alone, which is tested without them"
        )
    return max(RESAMPLES, needed)


def _compared(name: str) -> Protocol | None:
    """The protocol of that name, if its figures are compared."""
    protocol = find_protocol(name) if name in PROTOCOLS else None
    return protocol if protocol and protocol.compared else None


def _metrics(protocol: Protocol, asked: Sequence[str] | None, settings: Sequence[Any]) -> list[Metric]:
    """The metrics to compare under a protocol: those asked for, or the usual ones, that runs of all settings have."""
    comparable = [{metric.name: metric for metric in protocol.comparable(own)} for own in settings]
    return [
        comparable[0][name]
        for name in dict.fromkeys(asked or protocol.compared)
        if all(name in known for known in comparable)
    ]


def compare(
    pairs: Sequence[tuple[Compared, Compared]],
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

    A protocol that offers no comparison has one row, without a metric, where no metric is asked for. The further
    metrics that the studies name, and that could be asked for, are in `attrs["further_metrics"]` of the table.
    """
    check_question(metrics, alpha, margin)
    for before, after in pairs:
        _check_measured(before, after, metrics or ())
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
    ordered = order[COLUMNS].reset_index(drop=True)
    ordered.attrs[FURTHER] = [] if metrics else _further_metrics(pairs)
    return ordered


def _measured(system: Compared, *, usual: bool = False) -> dict[str, list[str]]:
    """The metrics that a system can be compared by, under each protocol; the `usual` ones are those of every study."""
    compared = {name: _compared(name) for name in system.cases}
    return {
        name: [metric.name for metric in protocol.comparable(None if usual else system.settings.get(name))]
        for name, protocol in compared.items()
        if protocol
    }


def _check_measured(before: Compared, after: Compared, metrics: Sequence[str]) -> None:
    """Raise an `InputError` that names the system of which a metric that is asked for was not measured."""
    for metric in metrics:
        lacking = [str(s) for s in (before, after) if not any(metric in known for known in _measured(s).values())]
        if lacking:
            raise InputError(
                f"{' and '.join(dict.fromkeys(lacking))}: {metric} was not measured there, so it cannot be compared; "
                "name a metric that both have"
            )


def _further_metrics(pairs: Sequence[tuple[Compared, Compared]]) -> list[str]:
    """The metrics that the studies of both systems of a pair name, besides those of every study."""
    further: dict[str, None] = {}
    for before, after in pairs:
        usual, other = _measured(before, usual=True), _measured(after)
        for protocol, known in _measured(before).items():
            both = [name for name in known if name in other.get(protocol, ())]
            further |= dict.fromkeys(name for name in both if name not in usual[protocol])
    return [*further]


def _families(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Protocols and metrics whose changes share a scale and a correction: accuracy first, then as they are known."""
    present = dict.fromkeys(zip(table["protocol"], table["metric"], strict=True))
    known = _known_families()
    return [family for family in known if family in present] + [family for family in present if family not in known]


def _known_families() -> list[tuple[str, str]]:
    """The protocols with the metrics that all their studies can be compared by."""
    protocols = [find_protocol(name) for name in PROTOCOLS]
    return [
        (protocol.name, metric.name) for protocol in protocols for metric in protocol.comparable(protocol.settings())
    ]


def _better(row: Mapping[str, Any]) -> float:
    if not row["metric"]:
        return 1.0
    return 1.0 if find_metric(row["metric"], metrics_of(row["protocol"])).higher_is_better else -1.0


def _result(row: Mapping[str, Any], alpha: float, margin: float) -> str:
    if math.isnan(row["p_holm"]):
        return NOT_COMPARED
    holds = row["lo"] > 0 or row["hi"] < 0
    if row["p_holm"] >= alpha or not holds:
        return NO_DIFFERENCE
    if abs(row["change"]) <= margin:
        return BELOW_MARGIN
    return IMPROVEMENT if row["change"] * _better(row) > 0 else REGRESSION


def _rows(before: Compared, after: Compared, metrics: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    shared = [name for name in before.cases if name in after.cases]
    if not shared:
        raise InputError(f"{before} and {after} have no protocol in common")
    for name in shared:
        protocol, subject = _compared(name), name
        if protocol:
            one, other = (system.evidence[name] for system in (before, after))
            known = [system.settings.get(name) for system in (before, after)]
            chosen = [metric.name for metric in _metrics(protocol, metrics, known)]
            changes = one.compare(other, before, after, chosen)
            changes = map(of_same_cases, changes) if before.reads_the_same(after, name) else changes
            subject = "" if protocol.is_default else protocol.subject or name
        else:
            why = f"figures of the protocol {name} are not compared"
            changes = iter(() if metrics else [paired.PairedChange("all", 0, NO_METRIC, reason=why)])
        head = {"baseline": str(before), "model": str(after), "protocol": name, "subject": subject}
        yield from ({**head, **vars(change), "p_holm": math.nan, "result": ""} for change in changes)


def comparison_lines(
    table: pd.DataFrame, alpha: float = ALPHA, margin: float = MARGIN, most: int | None = MOST_LINES
) -> list[str]:
    """The comparison in a few lines of text: counts in all and by metric, then at most so many changes, as sorted."""
    families = _families(table)
    lines = [f"{_counts(table)} (margin {margin:g}; chance of any false alarm per metric: {100 * alpha:g} %)"]
    for protocol, metric in [family for family in families if family[1]] if len(families) > 1 else ():
        rows = table[(table["protocol"] == protocol) & (table["metric"] == metric)]
        suffix = f" ({protocol})" if rows["subject"].any() else ""
        lines.append(f"  {metric}{suffix}: {_counts(rows, zeros=False)}")
    changes = table[table["result"].isin(SHORT_RESULTS)].to_dict("records")
    lines += [_change_line(row) for row in changes[:most]]
    if most is not None and len(changes) > most:
        lines.append(
            f"{len(changes) - most} more changes: `all=True` lists them here, `out='FILE'` writes every row as CSV, "
            "`html='FILE'` makes a page"
        )
    reasons = table.loc[table["result"] == NOT_COMPARED, "reason"].value_counts()
    lines += [f"not compared {count}: {reason}" for reason, count in reasons.items()]
    further = table.attrs.get(FURTHER) or ()
    if further:
        lines.append(f"these runs also have {', '.join(further)}: `metrics='{further[0]}'` compares by it")
    return lines


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
