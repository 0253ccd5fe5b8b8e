"""Compute the tables of the golden runs anew from their stored readouts: only when a rule changes on purpose.

    python tests/golden/remake_tables.py [RUN ...]

A run is a folder beside this file, such as schema1/ood; all where none is named. Readouts and pictures stay as they
are. A table that follows from the readouts as it is keeps its bytes; what changes is printed by table and column.
The digests of charts, and what the report of the first run shows, are written anew too.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
RUNS = ("run", "schema1/dependability", "schema1/od_test", "schema1/ood", "schema2", "monitoring", "localization")


def changed_columns(before: pd.DataFrame, after: pd.DataFrame) -> str:
    """What differs between two forms of a table, in a few words."""
    added, gone = [c for c in after if c not in before], [c for c in before if c not in after]
    words = ([f"new columns {', '.join(added)}"] if added else []) + ([f"without {', '.join(gone)}"] if gone else [])
    if len(before) != len(after):
        return "; ".join([*words, f"{len(before)} rows before, {len(after)} now"])
    for name in (name for name in before if name in after):
        same = (before[name] == after[name]) | (before[name].isna() & after[name].isna())
        if pd.api.types.is_numeric_dtype(before[name]) and pd.api.types.is_numeric_dtype(after[name]):
            same |= (before[name].astype(float) - after[name]).abs() <= 1e-12 + 1e-9 * after[name].abs()
        if not same.all():
            metrics = sorted(set(after.loc[~same.to_numpy(), "metric"])) if "metric" in after else []
            words.append(f"{name} in {int((~same).sum())} rows" + (f" of {', '.join(metrics)}" if metrics else ""))
    return "; ".join(words)


def remake(name: str) -> dict[str, str]:
    """Write the tables and the verdict of one run that no longer follow; the digests of its charts."""
    import roadworthy as rw
    from roadworthy import stored
    from roadworthy.core.record import HISTORY
    from roadworthy.engine.folder import write_json
    from roadworthy.protocols.declared import declared_tables
    from roadworthy.stored_evidence import load_evidence
    from roadworthy.stored_reading import as_earlier, same_table
    from roadworthy.verdict.history import make_entry, read_history, with_entry
    from roadworthy.verdict.why import DECIDING
    from test_golden import drawn

    with mock.patch.object(stored, "check_stored_tables"):  # columns that are declared anew are what is to be written
        run = rw.open_run(HERE / name)
    record, written = run.record, list[str]()
    declared = declared_tables(record.protocols)
    for table_name, computed in stored._tables(load_evidence(run.folder, record), record).items():
        if table_name not in run.folder.table_names():
            continue
        before = run.folder.table(table_name)
        computed = as_earlier(computed, before, declared[table_name].added_later)
        if same_table(computed, before):
            continue
        run.folder.write_table(table_name, computed)
        written += [f"tables/{table_name}.{ending}" for ending in ("csv", "parquet")]
        print(f"{name} {table_name}: {changed_columns(before, computed)}")
    if written:
        run.folder.update_record(written)
        run, written = rw.open_run(run.path), []
    if run.verify():
        verdict = run.verdict()
        stored_status = json.loads((run.path / "verdict.json").read_text())["status"]
        if verdict.status != stored_status:
            print(f"{name} verdict: {stored_status} before, {verdict.status} now")
        write_json(run.path / "verdict.json", verdict.to_json())
        written.append("verdict.json")
        if (run.path / HISTORY).is_file():
            (former,) = read_history(run.path)
            entry = make_entry(verdict.to_json(), former.criteria, former.made, former.date, subject=former.subject)
            stored.write_history(run.path, with_entry([], entry))
            written.append(HISTORY)
        if DECIDING.name in run.folder.table_names():
            written += run._write_deciding(verdict)
        run.folder.update_record(written)
    with tempfile.TemporaryDirectory() as work:
        copy = rw.open_run(shutil.copytree(run.path, Path(work) / "run"))
        for problem in copy.verify():
            print(f"{name}: {problem}")
        return drawn(copy.report())


def main() -> None:
    from golden.make import shown

    charts = json.loads((HERE / "charts.json").read_text())
    for name in sys.argv[1:] or RUNS:
        digests = remake(name)
        before = charts.get(Path(name).name, {})
        if changed := sorted(c for c in {*before, *digests} if before.get(c) != digests.get(c)):
            print(f"{name} charts: {', '.join(changed)}")
        charts[Path(name).name] = digests
        (HERE / name / ".lock").unlink(missing_ok=True)
    (HERE / "charts.json").write_text(json.dumps(charts, indent=1) + "\n")
    (HERE / "expected.json").write_text(json.dumps(shown(HERE / "run"), indent=1))


if __name__ == "__main__":
    main()
