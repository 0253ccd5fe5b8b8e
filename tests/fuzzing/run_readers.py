"""Readers of run folders that somebody else made: opened, judged, verified and reported."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

import yaml

from fuzzing.annotation_readers import spoil_file
from fuzzing.formats import spoil_parquet
from fuzzing.mutations import as_json, paths, spoil_value
from fuzzing.readers import Files, Reader
from roadworthy.api import Run, no_progress, run_study
from roadworthy.comparing import compare_runs
from roadworthy.core.files import json_bytes
from roadworthy.core.hashing import sealed
from samples import fill, study

GOLDEN = Path(__file__).parents[1] / "golden"
PROTOCOLS = {"classification": {"shifts": ["grey"], "levels": [5]}}


def files_of(folder: Path) -> Files:
    """All files of a run by their names below the folder above it."""
    return {
        str(path.relative_to(folder.parent)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def small_run(folder: Path) -> Files:
    """A run of 12 images and one shift."""
    fill(folder)
    (folder / "study.yaml").write_text(yaml.safe_dump(study(protocols=PROTOCOLS), sort_keys=False))
    run_study(folder / "study.yaml", out=folder / "run", progress=no_progress)
    (folder / "run" / ".lock").unlink(missing_ok=True)
    return files_of(folder / "run")


def golden_run(name: str) -> Callable[[Path], Files]:
    """A run that an earlier version stored."""

    def valid(folder: Path) -> Files:
        shutil.copytree(GOLDEN / name, folder / "run")
        return files_of(folder / "run")

    return valid


def as_written(record: Any) -> bytes:
    """A record of a run as this package would have written it; one with a seal gets that which fits it now."""
    plain = json.loads(as_json(record))
    if isinstance(plain, dict) and plain.pop("digest", None) is not None:
        plain = sealed(plain)
    return json_bytes(plain)


# run.json


def spoil_record(random: Random, valid: Files) -> dict[str, bytes]:
    record = json.loads(valid["run/run.json"])
    files = record.pop("files")
    made = spoil_value(random, record, sorted({str(step) for path in paths(record) for step in path})[:200])
    if isinstance(made, dict) and random.random() < 0.95:
        made["files"] = files
    return {"run/run.json": as_json(made) if random.random() < 0.1 else as_written(made)}


def read_record(folder: Path) -> None:
    run = Run(folder / "run")
    repr(run)
    run.verdict()


# everything else: damaged, and vouched for by the hashes of whoever tampered with it


def spoil_run(random: Random, valid: Files) -> dict[str, bytes | None]:
    """Files of a run spoiled, most often with the hashes of the manifests and of run.json made anew."""
    made: dict[str, bytes | None] = {}
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice([name for name in valid if name != "run/run.json" and not name.endswith(".csv")])
        if random.random() < 0.05:
            made[name] = None
        elif name.endswith("manifest.json"):
            made[name] = _spoiled_manifest(random, valid[name])
        elif name.endswith(".parquet"):
            made[name] = spoil_parquet(random, valid[name])
        else:
            made[name] = spoil_file(random, name, valid[name])
    if random.random() < 0.85:
        vouch(made, valid)
    return made


def _spoiled_manifest(random: Random, content: bytes) -> bytes:
    return as_written(spoil_value(random, json.loads(content)))


def vouch(made: dict[str, bytes | None], valid: Files) -> None:
    """Let manifests and run.json name the hashes of the files as they are now."""
    for name in [name for name in made if "/readouts/" in name or "/artifacts/" in name]:
        for above in PurePosixPath(name).parents:
            manifest = str(above / "manifest.json")
            if manifest in valid and manifest != name and made[name] is not None:
                record = json.loads(valid[manifest])
                part = str(PurePosixPath(name).relative_to(above))
                if part in record.get("parts", {}):
                    record["parts"][part] = hashlib.sha256(made[name] or b"").hexdigest()
                    made[manifest] = as_written(record)
    record = json.loads(valid["run/run.json"])
    for name, content in made.items():
        short = name.removeprefix("run/")
        if content is None:
            record["files"].pop(short, None)
        elif short in record["files"]:
            record["files"][short] = hashlib.sha256(content).hexdigest()
    made["run/run.json"] = as_written(record)


def read_verify(folder: Path) -> None:
    for problem in Run(folder / "run").verify():
        assert isinstance(problem, str)


# readouts, from which comparisons are made


def spoil_readouts(random: Random, valid: Files) -> dict[str, bytes | None]:
    parts = {name: content for name, content in valid.items() if "/readouts/" in name or name == "run/run.json"}
    return spoil_run(random, parts)


def read_comparison(folder: Path) -> None:
    compare_runs([folder / "run", folder / "run"], workers=1)


# tables, from which reports are made


def spoil_tables(random: Random, valid: Files) -> dict[str, bytes | None]:
    tables = [name for name in valid if name.startswith("run/tables/") and name.endswith(".parquet")]
    made: dict[str, bytes | None] = {}
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(tables)
        made[name] = spoil_parquet(random, valid[name])
    others = [name for name in valid if name in ("run/verdict.json", "run/verdicts.json", "run/study.yaml")]
    if random.random() < 0.2:
        name = random.choice(others)
        made[name] = spoil_file(random, name, valid[name])
    vouch(made, valid)
    return made


def read_report(folder: Path) -> None:
    run = Run(folder / "run")
    run.headline()
    run.report()
    (folder / "run" / ".lock").unlink(missing_ok=True)


REPORT_CODE = ("report/*.py", "protocols/classification/facts.py", "protocols/classification/page.py")
READERS = [
    Reader("run.json", ("core/record.py", "stored.py", "stored_evidence.py"), small_run, spoil_record, read_record),
    Reader(
        "run folder, verified",
        (
            "stored.py",
            "stored_evidence.py",
            "engine/folder.py",
            "engine/readouts.py",
            "core/manifests.py",
            "verdict/history.py",
        ),
        small_run,
        spoil_run,
        read_verify,
    ),
    Reader("runs, compared", ("comparing.py", "protocols/comparison.py"), small_run, spoil_readouts, read_comparison),
    Reader("tables, reported", REPORT_CODE, small_run, spoil_tables, read_report, writes="run"),
    Reader(
        "run of schema 1",
        ("core/first_schema.py", "core/record.py"),
        golden_run("schema1/ood"),
        spoil_record,
        read_record,
    ),
]
