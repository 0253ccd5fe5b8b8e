"""Holm's correction of a verdict: a textbook example, statsmodels, and what it promises, by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import norm
from statsmodels.stats.multitest import multipletests

from roadworthy.core.errors import InputError
from roadworthy.statistics import Estimate, holm
from roadworthy.statistics.paired import holm_divisor
from roadworthy.verdict import Criterion, Decision, Measure, Measurement, Verdict, judge, load_decided
from roadworthy.verdict.criteria import DecidedCriteria

THRESHOLD = 0.9


def criteria(count: int, **changes: object) -> list[Criterion]:
    return [Criterion(id=f"R{i}", metric="accuracy", at_least=THRESHOLD, **changes) for i in range(count)]  # type: ignore[arg-type]


def with_p(values: Sequence[float], passes: bool = False) -> Measure:
    """Normal bounds of values whose two-sided p value against the threshold is each of these, on one side of it."""
    by_id = {f"R{i}": p for i, p in enumerate(values)}

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        distance = float(norm.isf(by_id[criterion.id] / 2)) * (1 if passes else -1)
        value, half = THRESHOLD + 0.01 * distance, 0.01 * float(norm.isf((1 - confidence) / 2))
        return [Measurement({}, Estimate(value, value - half, value + half, n=100, groups=100))]

    return measure


def failed(verdict: Verdict) -> list[bool]:
    return [finding.status == "fail" for finding in verdict.findings]


def test_the_textbook_example() -> None:
    """Four hypotheses with p .01, .04, .03 and .005 at 5 %: Holm rejects the first and the last."""
    p = [0.01, 0.04, 0.03, 0.005]
    assert failed(judge(criteria(4), with_p(p))) == [True, True, True, True]
    verdict = judge(criteria(4), with_p(p), correction="holm")
    assert failed(verdict) == [True, False, False, True]
    assert [finding.status for finding in verdict.findings][1] == "inconclusive"
    because = verdict.findings[1].rows[0].because
    assert "bounds at 97.5 % by Holm's correction over 4 claims, without which it would be a fail" in because
    assert verdict.findings[1].rows[0].confidence == pytest.approx(0.975)
    assert verdict.to_json()["criteria"][1]["rows"][0]["confidence"] == pytest.approx(0.975)
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize("seed", range(25))
def test_against_statsmodels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = (rng.random(int(rng.integers(1, 12))) ** 3 * 0.2).tolist()
    expected = multipletests(p, alpha=0.05, method="holm")[0].tolist()
    assert failed(judge(criteria(len(p)), with_p(p), correction="holm")) == expected
    divisor = holm_divisor(len(p), lambda d: sum(value <= 0.05 / d for value in p))
    assert [value <= 0.05 / divisor for value in p] == expected


def test_passes_are_corrected_only_where_it_is_asked_for() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    statuses = {
        correction: [finding.status for finding in judge(criteria(4), with_p(p, True), correction=correction).findings]
        for correction in ("none", "holm", "holm_all")
    }
    assert statuses["none"] == statuses["holm"] == ["pass"] * 4
    assert statuses["holm_all"] == ["pass", "inconclusive", "inconclusive", "pass"]


def test_conditions_are_claims_of_their_own_and_the_worst_is_one() -> None:
    """With p = .02 a criterion fails alone, and does not where each of three conditions is a claim."""

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        half = 0.01 * float(norm.isf((1 - confidence) / 2))
        values = [THRESHOLD - 0.01 * float(norm.isf(0.01)), THRESHOLD + 0.1, THRESHOLD + 0.1]
        return [Measurement({"level": k}, Estimate(v, v - half, v + half, n=9, groups=9)) for k, v in enumerate(values)]

    assert judge(criteria(1), measure).status == "fail"
    assert judge(criteria(1), measure, correction="holm").status == "inconclusive"
    worst = judge(criteria(1, over="worst"), measure, correction="holm")
    assert worst.findings[0].rows[0].confidence is None, "one claim needs no correction beside that of the worst"


def test_what_it_promises() -> None:
    """Twenty criteria that just hold: some fails in a third of runs without a correction, in 2.5 % with it.

    And an overall pass where one criterion just misses and nineteen hold: at most 2.5 %, without any correction.
    """
    rng, runs, count = np.random.default_rng(0), 4000, 20
    z = rng.standard_normal((runs, count))
    two_sided = 2 * norm.sf(np.abs(z))
    failing = (two_sided < 0.05) & (z < 0)
    assert failing.any(axis=1).mean() == pytest.approx(1 - 0.975**20, abs=0.03)
    claims = [np.where(row_z < 0, row_p, 1.0) for row_z, row_p in zip(z, two_sided, strict=True)]
    corrected = np.array([holm(row) <= 0.05 for row in claims])
    assert corrected.any(axis=1).mean() == pytest.approx(0.025, abs=0.008)
    passes = z[:, 0] > norm.isf(0.025)
    assert passes.mean() == pytest.approx(0.025, abs=0.008), "however many others pass for sure"


def test_the_head_of_a_file_asks_for_it(tmp_path: Path) -> None:
    entry = {"id": "A", "metric": "accuracy", "at_least": 0.9}
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"correction": "holm", "criteria": [entry]}))
    loaded = load_decided(file)
    assert loaded.decision == Decision(correction="holm")
    assert load_decided(loaded.content()) == loaded, "as a study stores it"
    file.write_text(yaml.safe_dump({"correction": "bonferroni", "criteria": [entry]}))
    with pytest.raises(InputError, match=r"correction.*'none', 'holm' or 'holm_all'"):
        load_decided(file)
    file.write_text(yaml.safe_dump({"correction": "holm", "decided_by": "", "criteria": [entry]}))
    with pytest.raises(InputError, match="decided_by is blank"):
        load_decided(file)


def test_what_is_not_set_leaves_what_is_stored_as_it_was() -> None:
    criterion = Criterion(id="A", metric="accuracy", at_least=0.9)
    fields = ["id", "metric", "where", "over", "at_least", "at_most", "confidence", "min_groups", "hazard"]
    assert [*criterion.model_dump()] == fields
    assert Decision(decided_by="x", date="2026-11-30").model_dump() == {
        **{"decided_by": "x", "date": "2026-11-30", "example": False}
    }
    said = criterion.model_copy(update={"triggering_condition": "fog", "against": "baseline"})
    assert {"triggering_condition": "fog", "against": "baseline"}.items() <= said.model_dump().items()
    assert load_decided(DecidedCriteria((said,)).content()).criteria == (said,)
