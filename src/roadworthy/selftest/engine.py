"""Known answers of the whole way: a small study is run into a folder, stored, opened, verified and run again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roadworthy.selftest.items import Item, Values

KIND = "engine"
IMAGES, SIDE = 28, 32
STUDY: dict[str, Any] = {
    "name": "selftest",
    "size": SIDE,
    "data": {"test": {"builtin": "signs", "n": IMAGES}},
    "protocols": {"classification": {"shifts": ["noise"], "levels": [1]}},
    "criteria": [{"id": "A", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.5}],
}


def items() -> Iterator[Item]:
    """All items of this kind."""
    yield Item(KIND, "round_trip", "roadworthy.api:run_study", _round_trip)
    yield Item(KIND, "tampering", "roadworthy.api:run_study", _tampering)


def names() -> list[tuple[str, bool]]:
    """What is tried with a study."""
    return [(item.name, True) for item in items()]


def _run(run_study: Any, out: Path, workers: int) -> Any:
    from roadworthy.diagnosing import CLASSIFIER
    from roadworthy.engine.progress import no_progress

    study = STUDY | {"models": {"classifier": {"onnx": str(CLASSIFIER)}}}
    return run_study(study, out=out, workers=workers, progress=no_progress)


def _readouts(run: Any) -> dict[str, bytes]:
    """The stored answers, by the path of their file in the run."""
    folder = run.path / "readouts"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def _counted_accuracy() -> float:
    """The share of undisturbed signs that the classifier names right, counted without the engine."""
    from roadworthy.data import BuiltinDataset, Opening
    from roadworthy.diagnosing import CLASSIFIER
    from roadworthy.models import load_model

    batch = BuiltinDataset("signs", Opening(name="signs", size=(SIDE, SIDE)), n=IMAGES).batch(slice(None))
    answers = load_model(str(CLASSIFIER)).answer(batch, 64).probabilities.argmax(axis=1)
    return float((answers == batch.labels).mean())


def _round_trip(run_study: Any) -> Values:
    with tempfile.TemporaryDirectory(prefix="roadworthy-selftest-") as folder:
        first, second = (_run(run_study, Path(folder) / str(workers), workers) for workers in (1, 2))
        table = first.tables["classification"]
        clean = table[(table["shift"] == "none") & (table["metric"] == "accuracy")]
        return {
            "problems found by verify": first.verify(),
            "verdict": first.verdict().status,
            "accuracy is the counted one": bool(clean["value"].item() == _counted_accuracy()),
            "one and two workers store the same bits": _readouts(first) == _readouts(second),
            "cases": len(_readouts(first)),
        }


def _tampering(run_study: Any) -> Values:
    """A table that was changed afterwards is found."""
    with tempfile.TemporaryDirectory(prefix="roadworthy-selftest-") as folder:
        run = _run(run_study, Path(folder) / "run", 1)
        table = next((run.path / "tables").glob("classification.csv"))
        table.write_text(table.read_text("utf-8") + "\n", "utf-8")
        problems = run.verify()
        return {"a changed table is named": len(problems) == 1 and "classification.csv" in problems[0]}
