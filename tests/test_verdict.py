"""Pass, fail and inconclusive at the exact edges; worst and pooled; what JUnit says."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

from records import run_record, source_record
from roadworthy.core.errors import InputError
from roadworthy.publishing.content import _of_criteria
from roadworthy.pytest_plugin import figures_of
from roadworthy.report.markdown import code, verdict_markdown
from roadworthy.statistics import Estimate, wilson
from roadworthy.verdict import Criterion, Measurement, judge, load_criteria
from roadworthy.verdict.argument.mermaid import label
from roadworthy.verdict.judge import judge_measurement
from roadworthy.verdict.why import stored_deciding_row

AT_LEAST = Criterion(id="R", metric="accuracy", at_least=0.9)
AT_MOST = Criterion(id="R", metric="ece", at_most=0.1)


def measured(lo: float, value: float, hi: float, n: int = 100, **changes: object) -> Measurement:
    own = {name: changes.pop(name) for name in ("proportion", "unit") if name in changes}
    estimate = Estimate(value, lo, hi, n=n, groups=n, **changes)  # type: ignore[arg-type]
    return Measurement({"shift": "fog"}, estimate, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("criterion", "lo", "value", "hi", "status"),
    [
        (AT_LEAST, 0.9, 0.95, 0.99, "pass"),
        (AT_LEAST, math.nextafter(0.9, 0), 0.95, 0.99, "inconclusive"),
        (AT_LEAST, 0.8, 0.85, 0.9, "inconclusive"),
        (AT_LEAST, 0.8, 0.85, math.nextafter(0.9, 0), "fail"),
        (AT_LEAST, 0.9, 0.9, 0.9, "pass"),
        (AT_MOST, 0.01, 0.05, 0.1, "pass"),
        (AT_MOST, 0.01, 0.05, math.nextafter(0.1, 1), "inconclusive"),
        (AT_MOST, 0.1, 0.15, 0.2, "inconclusive"),
        (AT_MOST, math.nextafter(0.1, 1), 0.15, 0.2, "fail"),
        (AT_LEAST, math.nan, 0.95, math.nan, "inconclusive"),
        (AT_LEAST, math.nan, math.nan, math.nan, "inconclusive"),
    ],
)
def test_edges(criterion: Criterion, lo: float, value: float, hi: float, status: str) -> None:
    assert judge_measurement(criterion, measured(lo, value, hi)).status == status


def test_inconclusive_says_how_many_more_objects_it_takes() -> None:
    lo, hi = wilson(97, 100)
    judged = judge_measurement(
        Criterion(id="R", metric="accuracy", at_least=0.95), measured(lo, 0.97, hi, proportion=True)
    )
    assert judged.status == "inconclusive"
    assert judged.further_groups is not None
    n = 100 + judged.further_groups
    assert wilson(0.97 * n, n)[0] >= 0.95 > wilson(0.97 * (n - 1), n - 1)[0]
    assert str(judged.further_groups) in judged.because
    assert "the lower bound is below 0.95; with about " in judged.because
    assert judged.because.endswith(" more independent objects it would be a pass, if the value stayed")
    high = judge_measurement(Criterion(id="R", metric="ece", at_most=0.3), measured(0.28, 0.32, 0.36))
    assert "the upper bound is above 0.3; with" in high.because
    assert high.because.endswith("it would be a fail, if the value stayed")
    on_the_line = judge_measurement(AT_LEAST, measured(0.8, 0.9, 0.95))
    assert on_the_line.further_groups is None
    assert "no n would settle it" in on_the_line.because


def test_a_pass_needs_the_evidence_asked_for() -> None:
    criterion = Criterion(id="R", metric="accuracy", at_least=0.9, min_groups=300)
    judged = judge_measurement(criterion, measured(0.91, 0.95, 0.99, n=100))
    assert (judged.status, judged.further_groups) == ("inconclusive", 200)
    assert judge_measurement(criterion, measured(0.91, 0.95, 0.99, n=300)).status == "pass"
    assert judge_measurement(criterion, measured(0.7, 0.75, 0.8, n=100)).status == "fail", "a failure needs no more"


def test_each_needs_all_and_one_failure_fails() -> None:
    rows = [measured(0.95, 0.97, 0.99), measured(0.85, 0.92, 0.96), measured(0.95, 0.97, 0.99)]
    assert judge([AT_LEAST], lambda c, confidence: rows).status == "inconclusive"
    assert judge([AT_LEAST], lambda c, confidence: rows[:1]).status == "pass"
    assert judge([AT_LEAST], lambda c, confidence: [*rows, measured(0.5, 0.6, 0.7)]).status == "fail"
    assert judge([], lambda c, confidence: rows).exit_code == 0
    codes = [judge([AT_LEAST], lambda c, confidence, r=r: r).exit_code for r in (rows[:1], [measured(0, 0, 0.1)], rows)]
    assert codes == [0, 1, 3]


def test_worst_corrects_only_the_claim_that_one_misses() -> None:
    asked: list[float] = []

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        asked.append(confidence)
        wide = 0.04 if confidence == 0.95 else 0.06
        return [measured(v - wide, v, v + wide) for v in (0.97, 0.85, 0.95, 0.99)]

    worst = Criterion(id="R", metric="accuracy", at_least=0.9, over="worst")
    finding = judge([worst], measure).findings[0]
    assert asked == pytest.approx([0.95, 0.9875])
    row = finding.rows[0].measurement.estimate
    assert (row.value, row.lo, row.hi) == pytest.approx((0.85, 0.81, 0.91))
    assert finding.status == "inconclusive", "uncorrected it would have failed"


def test_a_certain_miss_is_not_hidden_by_a_missing_condition() -> None:
    worst = Criterion(id="R", metric="accuracy", at_least=0.9, over="worst")
    nothing = measured(math.nan, math.nan, math.nan, reason="case failed")
    assert judge([worst], lambda c, confidence: [nothing, measured(0.05, 0.1, 0.2)]).status == "fail"
    assert judge([worst], lambda c, confidence: [nothing, measured(0.95, 0.97, 0.99)]).status == "inconclusive"
    assert judge([worst], lambda c, confidence: [nothing]).status == "inconclusive"


NOTHING = (math.nan, math.nan, math.nan)
QUOTED = [
    (AT_LEAST, [(0.88, 0.89, 0.895), (0.08, 0.1, 0.12), (0.95, 0.97, 0.99)], 1),
    (AT_LEAST, [(0.5, 0.6, 0.89), (0.6, 0.61, 0.62), NOTHING], 0),
    (AT_LEAST, [(0.5, 0.6, 0.7), (0.4, 0.6, 0.8)], 1),
    (AT_MOST, [(0.11, 0.12, 0.2), (0.7, 0.8, 0.9), (0.01, 0.02, 0.03)], 1),
    (AT_LEAST, [(0.85, 0.92, 0.96), (0.8, 0.85, 0.95), NOTHING, (0.95, 0.97, 0.99)], 1),
    (AT_LEAST, [(math.nan, 0.5, math.nan), (0.85, 0.92, 0.96)], 0),
    (AT_LEAST, [(math.nan, math.nan, math.nan, "a"), NOTHING], 0),
    (AT_MOST, [(0.05, 0.09, 0.3), (0.05, 0.12, 0.13)], 1),
    (AT_LEAST, [(0.93, 0.94, 0.95), (0.901, 0.95, 0.99)], 1),
    (AT_LEAST, [(0.92, 0.95, 0.99), (0.92, 0.94, 0.95)], 1),
    (AT_MOST, [(0.01, 0.05, 0.06), (0.0, 0.01, 0.09)], 1),
    (Criterion(id="R", metric="time_between_failures", at_least=5), [(9, math.inf, math.inf), (6, 7, 8)], 1),
]
"""A criterion, lower bound, value and upper bound of its conditions, and which of them is quoted."""


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("criterion", "figures", "quoted"), QUOTED)
def test_the_condition_that_speaks_most_against_a_criterion_is_quoted(
    criterion: Criterion, figures: Sequence[Sequence[Any]], quoted: int, backwards: bool
) -> None:
    rows = [
        replace(measured(*own[:3]), where={"level": level})  # type: ignore[arg-type]
        for level, own in enumerate(figures)
    ]
    asked = criterion.model_copy(update={"question": "conditions"})
    rows = rows[::-1] if backwards and not math.isnan(rows[quoted].estimate.value) else rows
    verdict = judge([asked], lambda c, confidence: rows, questions=["conditions"])
    finding, entry = verdict.findings[0], verdict.to_json()["criteria"][0]
    sentence = next(row.because for row in finding.rows if row.measurement.where["level"] == quoted)
    assert f"level {quoted})" in sentence
    assert finding.sentence() == entry["because"] == stored_deciding_row(entry)["because"] == sentence
    assert verdict.answers[0].because == f"{criterion.id}: {sentence}"
    assert figures_of(finding)["where"] == f"level {quoted}"
    assert label(sentence) in verdict.argument().to_mermaid()
    marked = [
        case for case in ET.fromstring(verdict.to_junit()) if case.find(".//property[@name='decides']") is not None
    ]
    assert [case.get("name") for case in marked] == [f"{criterion.id} level={quoted}"]
    book = load_workbook(io.BytesIO(verdict.to_xlsx()))
    head, *cells = book["Criteria"].iter_rows(values_only=True)
    named = [dict(zip(head, row, strict=True)) for row in cells]
    assert [row["Condition"] for row in named if row["Decides"]] == [f"level {quoted}"]
    ((published, _),) = _of_criteria(verdict.to_json()).values()
    assert published.reason == sentence
    record = run_record(source_record(["m"], ["a", "b"]))
    summary = verdict_markdown(verdict.to_json(), record, [])
    assert [line for line in summary.split("\n") if line.endswith(f"| {code(f'level {quoted}')} |")], summary


def test_junit_counts_and_escapes() -> None:
    criterion = Criterion(id='<R&D> "1"\x01', metric="accuracy", at_least=0.9)
    rows = [measured(0.95, 0.97, 0.99), measured(0.5, 0.6, 0.7), measured(0.8, 0.92, 0.96)]
    root = ET.fromstring(judge([criterion], lambda c, confidence: rows).to_junit())
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    assert '<R&D> "1"' in (root[0].get("name") or "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- {id: A, metric: accuracy}", "exactly one of at_least and at_most"),
        ("- {id: A, metric: accuracy, at_least: 0.9, at_most: 1}", "exactly one"),
        ("- {id: A, metric: accuracy, at_leats: 0.9}", "did you mean 'at_least'"),
        ("- {id: A, metric: accuracy, at_least: 0.9, over: any}", "'each', 'worst' or 'pooled'"),
        ("- {id: A, metric: accuracy, at_least: 0.9, confidence: 95}", "less than 1"),
        ("- {id: A, metric: a, at_least: 0.9}\n- {id: A, metric: a, at_least: 1}", "more than once"),
        ("- {id: A, metric: accuracy, at_least: .nan}", "finite"),
        ("- {id: A, metric: accuracy, at_most: .inf}", "finite"),
        ("id: A", "must be a list"),
        ("[]", "must be a list"),
        ("- *alias", "not valid YAML"),
        ("- {id: A, id: B}", "is used twice"),
        ("- !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("\t- nope: [", "not valid YAML"),
    ],
)
def test_criteria_that_cannot_be_read_say_why(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "criteria.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        load_criteria(path)


def test_a_missing_criteria_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load_criteria(tmp_path / "nowhere.yaml")
