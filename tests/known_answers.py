"""Writes the truths of the self-test: `python tests/known_answers.py` (all kinds, or those named).

Truths of metrics and statistics are computed by other libraries, in exact fractions or by brute force, never by
Roadworthy. Truths of images and of fitted monitors are recorded on this machine, whose type is stored with them;
where a score has a closed form, it is computed by that.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from known_metrics import metrics
from known_monitors import monitors, recorded
from known_statistics import statistics
from known_truth import truth
from roadworthy.selftest import images
from roadworthy.selftest.items import TRUTHS
from roadworthy.selftest.machine import DRAWING, LEARNING, machine_type


def of_images(name: str) -> dict[str, Any]:
    kind = importlib.import_module(f"roadworthy.selftest.{name}")
    return recorded(kind, lambda item: images.TOLERANCE)


def data() -> dict[str, Any]:
    return of_images("data") | {"recognised_signs": truth({"problem": ""}, "the class that each sign is drawn for")}


def verdict() -> dict[str, Any]:
    statuses = {"reaches": "pass", "misses": "fail", "spans": "inconclusive"}
    rules = {
        "at_least": statuses,
        "at_most": statuses,
        "min_groups": {"too few objects": "inconclusive", "further objects": 50},
        "over": {"each": "fail", "worst": "fail"},
        "combined": {
            "pass and inconclusive": "inconclusive",
            "inconclusive and fail": "fail",
            "pass and fail": "fail",
            "pass and pass": "pass",
        },
        "failed_case": {"all well": "pass", "a case failed": "inconclusive", "no criteria": "none"},
        "exit_code": {"pass": 0, "none": 0, "fail": 1, "inconclusive": 3},
    }
    return {name: truth(expected, "the rule of a verdict, by hand") for name, expected in rules.items()}


def engine() -> dict[str, Any]:
    whole = {
        "problems found by verify": [],
        "verdict": "pass",
        "accuracy is the counted one": True,
        "one and two workers store the same bits": True,
        "cases": 3,
    }
    return {
        "round_trip": truth(
            whole, "the promises of a run; three cases: two to answer, one with the conditions of the data"
        ),
        "tampering": truth({"a changed table is named": True}, "the promises of a run"),
    }


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "metrics": metrics,
    "statistics": statistics,
    "shifts": lambda: of_images("shifts"),
    "outliers": lambda: of_images("outliers"),
    "monitors": monitors,
    "verdict": verdict,
    "data": data,
    "engine": engine,
}
MACHINE = {"shifts": DRAWING, "outliers": DRAWING, "data": DRAWING, "monitors": LEARNING}


def stored(kind: str) -> dict[str, Any]:
    """What is written for a kind."""
    machine = {"machine": machine_type(*MACHINE[kind])} if kind in MACHINE else {}
    return {**machine, "items": KINDS[kind]()}


def as_text(content: dict[str, Any]) -> str:
    """JSON with a line for each item."""
    head = [f'"machine": {json.dumps(content["machine"])},'] if "machine" in content else []
    rows = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in content["items"].items()]
    return "\n".join(["{", *head, '"items": {', ",\n".join(rows), "}", "}", ""])


def main(kinds: list[str]) -> None:
    for kind in kinds or KINDS:
        (TRUTHS / f"{kind}.json").write_text(as_text(stored(kind)), "utf-8")
        print(kind)


if __name__ == "__main__":
    main(sys.argv[1:])
