"""Readers of stored answers: predictions, scores of monitors, tables of decisions."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pyarrow as pa

from fuzzing.formats import parquet_bytes, spoil_parquet
from fuzzing.mutations import spoil_lines
from fuzzing.readers import Files, Reader
from roadworthy.data import open_dataset
from roadworthy.models import StoredPredictions
from roadworthy.monitors.opening import MonitorOpening, open_monitor
from roadworthy.protocols.monitoring.standalone import decision_lines, evaluate_decisions
from samples import PREDICTIONS, fill

BOXES = "id,p0,p1,p2,box0,box1,box2,box3,variance0,variance1,variance2,variance3\n" + "".join(
    f"{row},0.5,0.25,0.25,1,2,5,6,0.5,0.5,0.5,0.5\n" for row in range(12)
)
STIMULI = "stimulus,id,logit0,logit1,logit2\n" + "".join(
    f"{stimulus},{row},1.5,-2,{row}\n" for stimulus in ("none-0-r0-ab", "fog-1-r0-cd") for row in range(12)
)
CSV_FILES = (PREDICTIONS, BOXES, STIMULI)


def as_parquet(text: str) -> bytes:
    """A CSV table as a Parquet file, ids as texts."""
    return parquet_bytes(pa.Table.from_pandas(pd.read_csv(io.StringIO(text), dtype={"id": str}), preserve_index=False))


def lists() -> bytes:
    """Answers in list columns."""
    rows = {"id": [str(row) for row in range(12)], "probabilities": [[0.5, 0.25, 0.25]] * 12}
    return parquet_bytes(pa.table({**rows, "boxes": [[1.0, 2.0, 5.0, 6.0]] * 12}))


PARQUET_FILES = (*map(as_parquet, CSV_FILES), lists())


def read_predictions(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        model = StoredPredictions(folder / name)
        model.describe()
        model.predict(open_dataset(folder / "data.npz").batch(slice(0, 2)))

    return read


def valid_data(folder: Path) -> Files:
    fill(folder)
    return {}


SCORES = "stimulus,id,score\n" + "".join(f"none-0-r0-ab,{row},{row / 7}\n" for row in range(12))


def valid_scores(folder: Path) -> Files:
    return {"s.csv": SCORES.encode(), "s.parquet": as_parquet(SCORES)}


def spoil_scores(random: Random, valid: Files) -> dict[str, bytes]:
    if random.random() < 0.5:
        return {"s.csv": spoil_lines(random, valid["s.csv"]), "s.parquet": valid["s.parquet"]}
    return {"s.parquet": spoil_parquet(random, valid["s.parquet"]), "s.csv": valid["s.csv"]}


def read_scores(folder: Path) -> None:
    for name in ("s.csv", "s.parquet"):
        monitor = open_monitor({"monitor": "stored", "scores": name}, MonitorOpening(base=folder))
        monitor.check_complete({"none-0-r0-ab": ["0", "1"]})  # type: ignore[attr-defined]


def decisions() -> str:
    rng = np.random.default_rng(0)
    rows = [
        f"{row},{row % 3},{row % 3 if row % 4 else 1},{row % 2},{int(rng.integers(2))},{rng.random():.3f},m,w,g{row}"
        for row in range(24)
    ]
    return "id,label,prediction,ood,reject,score,model,monitor,group\n" + "\n".join(rows)


DECISIONS = decisions()


def valid_decisions(folder: Path) -> Files:
    return {"t.csv": DECISIONS.encode(), "t.parquet": as_parquet(DECISIONS), "kind": b"csv"}


def spoil_decisions(random: Random, valid: Files) -> dict[str, bytes]:
    if random.random() < 0.7:
        return {"t.csv": spoil_lines(random, valid["t.csv"]), "kind": b"csv"}
    return {"t.parquet": spoil_parquet(random, valid["t.parquet"]), "kind": b"parquet"}


def read_decisions(folder: Path) -> None:
    tables = evaluate_decisions(folder / f"t.{(folder / 'kind').read_text()}")
    list(decision_lines(tables))


PREDICTION_CODE = ("models/predictions.py", "models/boxes.py")
READERS = [
    Reader(
        "predictions csv",
        PREDICTION_CODE,
        valid_data,
        lambda random, _: {"p.csv": spoil_lines(random, random.choice(CSV_FILES).encode())},
        read_predictions("p.csv"),
    ),
    Reader(
        "predictions parquet",
        PREDICTION_CODE,
        valid_data,
        lambda random, _: {"p.parquet": spoil_parquet(random, random.choice(PARQUET_FILES))},
        read_predictions("p.parquet"),
    ),
    Reader(
        "scores of a monitor",
        ("monitors/third_party.py", "models/predictions.py"),
        valid_scores,
        spoil_scores,
        read_scores,
    ),
    Reader(
        "table of decisions", ("protocols/monitoring/standalone.py",), valid_decisions, spoil_decisions, read_decisions
    ),
]
