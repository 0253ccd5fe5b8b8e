"""Markdown for release pipelines: the verdict as a job summary, a comparison as a comment on a merge request.

Names come from files: a class called `|`, `<img>` or `@team` stays a name, breaks no table and calls nobody.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from roadworthy.core.errors import one_line
from roadworthy.core.record import RunRecord
from roadworthy.metrics import Metric
from roadworthy.report.comparison import Change, load_comparison
from roadworthy.report.reading import number_of
from roadworthy.report.words import bounds, listing, number, p_value, plural, signed, whole, words_of
from roadworthy.statistics.paired import BELOW_MARGIN, IMPROVEMENT, NO_DIFFERENCE, NOT_COMPARED, REGRESSION, RESULTS
from roadworthy.verdict.why import stored_deciding_row, stored_harm

MARKS = {"pass": "✅ pass", "fail": "❌ fail", "inconclusive": "⚠️ inconclusive", "none": "no criteria"}
"""How a status is shown; those of a question that was not judged have none."""
WORST_FIRST = ("fail", "inconclusive", "pass")
MOST_CRITERIA = 25
MOST_CONDITIONS = 15
MOST_FAILURES = 5
MOST_CHANGES = 15
MOST_FOLDED = 20
MOST_REASONS = 4
LONGEST_NAME = 120
"""Characters of a name in a table; a longer one loses its middle."""

_NEEDS_ENTITIES = re.compile(r"[`|\\]")
_SPECIAL = re.compile(r"[`*_{}\[\]<>#!|~\\@&$^]|(?<=[a-zA-Z])[.:](?=[\w/])|^[-+=\d]")
"""Markup, what makes an address a link, and what begins a list."""
_CALLS = re.compile(r"(?<=[@#!~$&%])(?=\w)")
"""Between a sign and a word that would name a person, an issue, a merge request or a label."""


def code(name: object) -> str:
    """A name as code, which no renderer reads any further; it can stand in a table.

    >>> code("no_left"), code("a|b"), code("<img src=x>")
    ('`no_left`', '<code>a&#124;b</code>', '`<img src=x>`')
    """
    name = _short(one_line(str(name)))
    if not name:
        return ""
    return f"<code>{_entities(name)}</code>" if _NEEDS_ENTITIES.search(name) else f"`{name}`"


def text(sentence: object) -> str:
    """A sentence with names in it: what Markdown or a code host would act on is spelled as entities.

    >>> text("fog, level 5: 12 of *all* <b>"), text("ask @team")
    ('fog, level 5: 12 of &#42;all&#42; &#60;b&#62;', 'ask &#64;&#8203;team')
    """
    line = one_line(str(sentence))
    calls = [found.start() for found in _CALLS.finditer(line)]
    parts = [line[start:end] for start, end in zip([0, *calls], [*calls, len(line)], strict=True)]
    return "&#8203;".join(_entities(part) for part in parts)


def _entities(line: str) -> str:
    """Every character that could be markup as a numeric entity."""
    return _SPECIAL.sub(lambda character: f"&#{ord(character[0])};", line)


def _short(name: str) -> str:
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]} ... {name[-half:]}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose cells are Markdown already; a blank line follows it."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that a reader has to unfold."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "</details>", ""]


def verdict_markdown(verdict: Mapping[str, Any], record: RunRecord, findings: Sequence[str]) -> str:
    """A job summary: the verdict, a table of criteria with value, bounds and threshold, and the main findings.

    verdict    as `Verdict.to_json` gives it;  record   of the run
    findings   what the pages of the run say in a line each, the worst conditions among them
    """
    criteria = sorted(verdict["criteria"], key=lambda entry: WORST_FIRST.index(entry["status"]))
    lines = [f"## Roadworthy: {MARKS[verdict['status']]}", "", _run_line(record), ""]
    if not criteria:
        lines += ["No acceptance criteria were given, so nothing was judged.", ""]
    lines += _failures(verdict["failed"])
    if verdict.get("questions"):
        answers = [(MARKS[answer["status"]], code(answer["question"])) for answer in verdict["questions"]]
        lines += table(("result", "question"), answers)
    if criteria:
        head = ("result", "criterion", "metric", "value", "bounds", "threshold", "evidence", "decided by")
        lines += table(head, (_criterion_row(entry) for entry in criteria[:MOST_CRITERIA]))
        lines += _more(len(criteria) - MOST_CRITERIA, "criteria, all of them in verdict.json")
        remarks = [f"- {code(entry['id'])}: {text(entry['remark'])}" for entry in criteria if entry["remark"]]
        lines += [*remarks, ""] if remarks else []
    lines += _unmet_conditions(criteria)
    if findings:
        lines += [*(f"- {text(finding)}" for finding in findings), ""]
    return "\n".join(lines)


def _run_line(record: RunRecord) -> str:
    """What was tested on what."""
    parts = []
    for name, source in record.sources.items():
        models = listing([code(model) for model in source.models])
        images = f"{plural(source.data.images, 'image')} of {plural(source.data.groups, 'object')}"
        parts.append(f"{f'{code(name)}: ' if name else ''}{models} on {code(source.data.name)} ({images})")
    return f"Study {code(record.study)}, seed {record.seed}. {'; '.join(parts)}."


def _more(count: int, what: str) -> list[str]:
    return [f"... and {whole(count)} more {what}.", ""] if count > 0 else []


def _failures(failed: Sequence[Mapping[str, Any]]) -> list[str]:
    if not failed:
        return []
    lines = [f"**{plural(len(failed), 'part')} of the run failed, which is never a pass:**", ""]
    lines += [f"- {code(part['name'])}: {text(_short(part['reason']))}" for part in failed[:MOST_FAILURES]]
    return [*lines, "", *_more(len(failed) - MOST_FAILURES, "in the report")]


def _required(entry: Mapping[str, Any], metric: Metric) -> str:
    """The threshold of a criterion in words."""
    side = "at_least" if entry.get("at_least") is not None else "at_most"
    worse = " worse than the baseline" if entry.get("against") else ""
    return f"{side.replace('_', ' ')} {number(metric, entry[side])}{worse}"


def _figures(row: Mapping[str, Any], metric: Metric) -> tuple[str, str]:
    """Value and bounds of a measurement in words; one without a value and with a lower bound is infinite."""
    value = math.inf if row["value"] is None and row["lo"] is not None else number_of(row["value"])
    return number(metric, value), bounds(metric, number_of(row["lo"]), number_of(row["hi"]))


def _condition(row: Mapping[str, Any]) -> str:
    return code(", ".join(f"{name} {value}" for name, value in row["where"].items())) or "all images"


def _criterion_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    metric, row = words_of(entry["metric"]), stored_deciding_row(entry)
    value, limits = _figures(row, metric)
    level = 100 * row.get("confidence", entry["confidence"])
    confidence = f"{limits} ({level:.5g} %)" if row["lo"] is not None else limits
    name = code(entry["id"]) + (f" {text(_short(entry['hazard']))}" if entry["hazard"] else "")
    if entry.get("triggering_condition"):
        name += f" (triggered by: {text(_short(entry['triggering_condition']))})"
    target = f" of {whole(entry['min_groups'])} required" if entry.get("min_groups", 1) > 1 else ""
    evidence = f"{whole(row['groups'])}{target} {text(row['unit'])}"
    shown = (MARKS[entry["status"]], name, text(metric.label), value, confidence, _required(entry, metric))
    return (*shown, evidence, _condition(row))


def _unmet_conditions(criteria: Sequence[Mapping[str, Any]]) -> list[str]:
    """The worst conditions of criteria that several conditions decide, folded; a single one stands in the table."""
    several = [(entry, [row for row in entry["rows"] if row["status"] != "pass"]) for entry in criteria]
    rows = [(entry, row) for entry, unmet in several if len(unmet) > 1 for row in unmet]
    rows.sort(key=lambda pair: (WORST_FIRST.index(pair[1]["status"]), stored_harm(*pair)))
    if not rows:
        return []
    cells = []
    for entry, row in rows[:MOST_CONDITIONS]:
        metric = words_of(entry["metric"])
        figures = (*_figures(row, metric), _required(entry, metric))
        cells.append((MARKS[row["status"]], code(entry["id"]), _condition(row), *figures))
    lines = table(("result", "criterion", "condition", "value", "bounds", "threshold"), cells)
    lines += _more(len(rows) - MOST_CONDITIONS, "in verdict.json")
    return _folded(f"The worst of {plural(len(rows), 'condition')} that do not meet a criterion", lines)


def comparison_markdown(table: pd.DataFrame, alpha: float, margin: float) -> str:
    """A comment on a merge request: regressions first, at most some 60 lines, the rest folded or counted.

    `table` is what `roadworthy.api.compare_runs` gives, `alpha` and `margin` are those it was made with.
    """
    compared = load_comparison(table)
    of = {result: compared.of(result) for result in RESULTS}
    pairs = list(dict.fromkeys((change.baseline, change.model) for change in compared.changes))
    several = len(pairs) > 1
    lines = [f"## Roadworthy: {_counted(of)}", "", _pairs_line(pairs), ""]
    if of[REGRESSION]:
        lines += _change_table(of[REGRESSION][:MOST_CHANGES], several)
    folded = [*of[REGRESSION][MOST_CHANGES:], *of[IMPROVEMENT], *of[BELOW_MARGIN], *of[NO_DIFFERENCE]]
    if folded:
        names = {REGRESSION: "further regression", IMPROVEMENT: "improvement", BELOW_MARGIN: "change below the margin"}
        counts = Counter(change.result for change in folded)
        words = [plural(counts[name], noun) for name, noun in names.items() if counts[name]]
        words += [f"{whole(counts[NO_DIFFERENCE])} without a clear difference"] if counts[NO_DIFFERENCE] else []
        rows = _change_table(folded[:MOST_FOLDED], several, results=True)
        rest = _more(len(folded) - MOST_FOLDED, "in the CSV that `roadworthy compare` writes")
        lines += _folded(listing(words), [*rows, *rest])
    if of[NOT_COMPARED]:
        reasons = compared.reasons
        lines += [f"- not compared {whole(count)}: {text(_short(why))}" for why, count in reasons[:MOST_REASONS]]
        lines += [*([] if len(reasons) <= MOST_REASONS else ["- not compared for further reasons: see the CSV"]), ""]
    lines += [
        f"<sub>A regression is larger than the margin ({margin:g}), its 95 % interval leaves 0 out, and the chance of "
        f"any false alarm per metric is at most {100 * alpha:g} %. None found does not show that there is none.</sub>",
        "",
    ]
    return "\n".join(lines)


def _counted(of: Mapping[str, Sequence[Change]]) -> str:
    worse, better = len(of[REGRESSION]), len(of[IMPROVEMENT])
    mark = "❌" if worse else "⚠️" if len(of[NOT_COMPARED]) == sum(map(len, of.values())) else "✅"
    none_compared = " (nothing was compared)" if mark == "⚠️" else ""
    return f"{mark} {plural(worse, 'regression')}, {plural(better, 'improvement')}{none_compared}"


def _pairs_line(pairs: Sequence[tuple[str, str]]) -> str:
    shown = [f"{code(model)} against {code(baseline)}" for baseline, model in pairs[:MOST_REASONS]]
    rest = [f"{len(pairs) - MOST_REASONS} more"] if len(pairs) > MOST_REASONS else []
    return f"{listing([*shown, *rest])}: the same images, condition by condition."


def _change_table(changes: Sequence[Change], several: bool, *, results: bool = False) -> list[str]:
    head = [*(["result"] if results else []), *(["model"] if several else [])]
    head += ["condition", "metric", "before", "after", "change", "95 % interval", "p (Holm)"]
    rows = []
    for change in changes:
        values = [number(change.measured, value) for value in (change.before, change.after)]
        interval = f"{signed(change.lo)} to {signed(change.hi)}"
        first = [*([change.result] if results else []), *([code(change.model)] if several else [])]
        shown = [code(change.where), text(change.family), *values, signed(change.change), interval]
        rows.append([*first, *shown, p_value(change.p_holm)])
    return table(head, rows)
