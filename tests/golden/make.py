"""Make the golden run anew: only when the layout of a run changes on purpose, together with `engine.folder.SCHEMA`.

    python tests/golden/make.py

The report is left out: it is 5 MB and made anew by the test. What it shows is kept in expected.json.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

CRITERIA = [
    {"id": "G-1", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.3},
    {"id": "G-2", "hazard": "misread in fog", "metric": "accuracy", "where": {"shift": "fog"}, "at_least": 0.4},
    {"id": "G-3", "metric": "ece", "over": "worst", "at_most": 0.9, "confidence": 0.9},
]


def shown(run: Path) -> dict[str, object]:
    """What the report of a run says: the verdict, every value with its bounds, and the worst three conditions."""
    from roadworthy.protocols.classification.facts import load_classification
    from roadworthy.report.facts import load_facts

    facts = load_classification(run, load_facts(run))
    return {
        "verdict": [facts.status, *(f"{criterion.id} {criterion.status}" for criterion in facts.criteria)],
        "cells": [
            [model, condition.shift, condition.level, metric, str(cell.value), str(cell.lo), str(cell.hi), cell.reason]
            for (model, condition, metric), cell in sorted(facts.cells.items())
        ],
        "worst": [[model, str(condition)] for model in facts.models for condition in facts.worst(model)],
    }


def main() -> None:
    import roadworthy as rw
    from tiny import write_study

    work = HERE / "work"
    work.mkdir()
    levels = {"shifts": ["fog", "rotation"], "levels": [1, 5], "repeats": 2}
    source = write_study(
        work,
        n=300,
        name="golden",
        protocols={"classification": levels},
        models={"tiny": {"onnx": "tiny.onnx"}},
        criteria=CRITERIA,
    )
    shutil.rmtree(HERE / "run", ignore_errors=True)
    run = rw.run_study(source, out=HERE / "run")
    (HERE / "expected.json").write_text(json.dumps(shown(run.path), indent=1))
    (run.path / "report.html").unlink()
    (run.path / ".lock").unlink()
    run.folder.write_record(run.record)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
