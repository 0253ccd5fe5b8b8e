"""Runs as no study makes them yet: the results of several runs in one folder, or of one run under two sources."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd


def merged(runs: Sequence[Path], out: Path) -> Path:
    """The tables, pictures and records of several runs in one folder; later ones add to the first."""
    for run in reversed(runs):
        shutil.copytree(run, out, dirs_exist_ok=True)
    records = [json.loads((run / "run.json").read_text()) for run in runs]
    whole = {key: value for record in reversed(records) for key, value in record.items()}
    whole["cases"] = [case for record in records for case in record["cases"]]
    whole["models"] = {name: model for record in reversed(records) for name, model in record["models"].items()}
    (out / "run.json").write_text(json.dumps(whole))
    return out


def with_sources(run: Path, out: Path, names: Sequence[str]) -> Path:
    """A run as if it had these sources: every row of every table under each name, in a first column `source`."""
    shutil.copytree(run, out)
    for path in (out / "tables").glob("*.parquet"):
        table = pd.read_parquet(path)
        if "source" not in table:
            copies = [table.assign(source=name)[["source", *table.columns]] for name in names]
            pd.concat(copies, ignore_index=True).to_parquet(path, index=False)
    record = json.loads((out / "run.json").read_text())
    own = {"data": record["data"], "models": record["models"]}
    record["cases"] = [{**case, "source": name} for name in names for case in record["cases"]]
    record["sources"] = {name: {**own, "data": {**own["data"], "name": f"data of {name}"}} for name in names}
    (out / "run.json").write_text(json.dumps(record))
    return out
