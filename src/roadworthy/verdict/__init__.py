"""Verdict: acceptance criteria against measured bounds gives pass, fail or inconclusive."""

from roadworthy.verdict.criteria import (
    Criterion,
    DecidedCriteria,
    Decision,
    criteria_file_of,
    load_criteria,
    load_decided,
)
from roadworthy.verdict.failures import Failed, failed_parts, failure_lines
from roadworthy.verdict.judge import Measure, Measurement, Verdict, judge
from roadworthy.verdict.questions import QUESTIONS
from roadworthy.verdict.thresholds import check_threshold, threshold_remark
from roadworthy.verdict.why import Why

__all__ = [
    "QUESTIONS",
    "Criterion",
    "DecidedCriteria",
    "Decision",
    "Failed",
    "Measure",
    "Measurement",
    "Verdict",
    "Why",
    "check_threshold",
    "criteria_file_of",
    "failed_parts",
    "failure_lines",
    "judge",
    "load_criteria",
    "load_decided",
    "threshold_remark",
]
