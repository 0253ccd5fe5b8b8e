"""Bundles that somebody tampered with: an archive is taken apart, changed, and put together again."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from roadworthy.core.hashing import sealed
from roadworthy.engine.folder import RunFolder

Change = Callable[[Path], None]
"""Changes what lies in the folder of a run."""


def rebuilt(bundle: Path, target: Path, change: Change, *, record: bool = False, index: bool = False) -> Path:
    """The bundle with a change to its run; hashes are refreshed in the record of the run, and in the index, or not."""
    home = target.with_suffix(".taken-apart")
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(home)
    run = home / "run"
    change(run)
    if record:
        RunFolder(run).update_record(
            [n for n in json.loads((run / "run.json").read_text())["files"] if (run / n).exists()]
        )
    if index:
        content = json.loads((home / "index.json").read_text())
        content["files"] = {
            path.relative_to(run).as_posix(): {
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "size": path.stat().st_size,
            }
            for path in sorted(run.rglob("*"))
            if path.is_file()
        }
        (home / "index.json").write_text(json.dumps(content, indent=1))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(path for path in home.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(home).as_posix())
    return target


def flip_byte(name: str) -> Change:
    """One byte of a file, in the middle."""

    def change(run: Path) -> None:
        content = bytearray((run / name).read_bytes())
        content[len(content) // 2] ^= 1
        (run / name).write_bytes(content)

    return change


def edit_text(name: str, before: str, after: str) -> Change:
    """A text in a file, by another one."""

    def change(run: Path) -> None:
        text = (run / name).read_text()
        assert before in text
        (run / name).write_text(text.replace(before, after))

    return change


def edit_answer(case: str, row: int) -> Change:
    """The stored probabilities of one image, and the hash of the part in its manifest: no table reads them."""

    def change(run: Path) -> None:
        (home,) = run.glob(f"readouts/{case}*")
        (part,) = home.glob("part-*.parquet")
        table = pq.read_table(part)
        answers = table["probabilities"].to_pylist()
        answers[row] = answers[row][::-1]
        kind = table["probabilities"].type
        position = table.column_names.index("probabilities")
        pq.write_table(table.set_column(position, "probabilities", pa.array(answers, kind)), part)
        facts = json.loads((home / "manifest.json").read_text())
        facts.pop("digest")
        facts["parts"][part.name] = hashlib.sha256(part.read_bytes()).hexdigest()
        (home / "manifest.json").write_text(json.dumps(sealed(facts), indent=1, ensure_ascii=False) + "\n")

    return change
