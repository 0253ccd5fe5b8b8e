"""Known answers of the verdict: which status follows from bounds and a threshold, and from several findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roadworthy.selftest.items import Item, Values

KIND = "verdict"
BOUNDS = {
    "reaches": (0.95, 0.90, 0.98),
    "misses": (0.85, 0.80, 0.8999),
    "spans": (0.92, 0.88, 0.95),
}
"""Value, lower and upper bound of a measure, named by what they say of the threshold 0.9."""


def items() -> Iterator[Item]:
    """All items of this kind."""
    yield Item(KIND, "at_least", "roadworthy.verdict.judge:judge_measurement", _at_least)
    yield Item(KIND, "at_most", "roadworthy.verdict.judge:judge_measurement", _at_most)
    yield Item(KIND, "min_groups", "roadworthy.verdict.judge:judge_measurement", _min_groups)
    yield Item(KIND, "over", "roadworthy.verdict.judge:judge", _over)
    yield Item(KIND, "combined", "roadworthy.verdict.answers:combined", _combined)
    yield Item(KIND, "failed_case", "roadworthy.verdict.judge:judge", _failed_case)
    yield Item(KIND, "exit_code", "roadworthy.verdict.judge:Verdict", _exit_code)


def names() -> list[tuple[str, bool]]:
    """The rules that a verdict follows."""
    return [(item.name, True) for item in items()]


def _estimate(bounds: tuple[float, float, float], groups: int = 200) -> Any:
    from roadworthy.statistics import Estimate

    return Estimate(*bounds, n=groups, groups=groups)


def _criterion(**changes: Any) -> Any:
    from roadworthy.verdict.criteria import Criterion

    given: dict[str, Any] = {"id": "R", "metric": "accuracy", "at_least": 0.9}
    return Criterion(**given | changes)


def _measurement(bounds: tuple[float, float, float], groups: int = 200, **where: Any) -> Any:
    from roadworthy.verdict.judge import Measurement

    return Measurement(where, _estimate(bounds, groups))


def _at_least(judge_measurement: Any) -> Values:
    criterion = _criterion()
    return {name: judge_measurement(criterion, _measurement(bounds)).status for name, bounds in BOUNDS.items()}


def _at_most(judge_measurement: Any) -> Values:
    criterion = _criterion(at_least=None, at_most=0.1)
    mirrored = {name: (1 - value, 1 - hi, 1 - lo) for name, (value, lo, hi) in BOUNDS.items()}
    mirrored["reaches"] = (0.05, 0.02, 0.1)
    return {name: judge_measurement(criterion, _measurement(bounds)).status for name, bounds in mirrored.items()}


def _min_groups(judge_measurement: Any) -> Values:
    judged = judge_measurement(_criterion(min_groups=250), _measurement(BOUNDS["reaches"]))
    return {"too few objects": judged.status, "further objects": judged.further_groups}


def _over(judge: Any) -> Values:
    def measured(criterion: Any, confidence: float) -> Any:
        return [_measurement(bounds, condition=name) for name, bounds in BOUNDS.items()]

    return {over: judge([_criterion(over=over)], measured).status for over in ("each", "worst")}


def _combined(combined: Any) -> Values:
    cases = (["pass", "inconclusive"], ["inconclusive", "fail"], ["pass", "fail"], ["pass", "pass"])
    return {" and ".join(statuses): combined(statuses) for statuses in cases}


def _failed_case(judge: Any) -> Values:
    from roadworthy.verdict.failures import Failed

    def measured(criterion: Any, confidence: float) -> Any:
        return [_measurement(BOUNDS["reaches"])]

    failed = [Failed("tiny at fog 3", "out of memory")]
    return {
        "all well": judge([_criterion()], measured).status,
        "a case failed": judge([_criterion()], measured, failed=failed).status,
        "no criteria": judge([], measured).status,
    }


def _exit_code(verdict: Any) -> Values:
    return {status: verdict(status).exit_code for status in ("pass", "none", "fail", "inconclusive")}
