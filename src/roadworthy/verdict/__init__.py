"""Verdict: acceptance criteria against measured bounds gives pass, fail or inconclusive."""

from roadworthy.verdict.criteria import Criterion, load_criteria
from roadworthy.verdict.judge import Measure, Measurement, Verdict, judge

__all__ = ["Criterion", "Measure", "Measurement", "Verdict", "judge", "load_criteria"]
