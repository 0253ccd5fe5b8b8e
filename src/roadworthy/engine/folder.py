"""A run on disk: where things lie, who may write, and how, so that a kill never leaves a half-written file.

RUN/
  study.yaml  run.json                        what was asked; provenance and a SHA-256 per file
  readouts/<case>/part-*.parquet              immutable parts, with manifest.json: see core/manifests.py
  artifacts/<hash>/                           built things, with manifest.json, which tells their competence
  tables/<name>.parquet + .csv                measures and statistics
  media/                                      pictures the report shows
  verdict.json  verdicts.json  report.html    the run's own verdict; every verdict there was

In runs of schema 1, readouts lie under the name of the protocol that asked for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from roadworthy.core.cells import ENDING, CsvText, escape_cell
from roadworthy.core.errors import DamagedFile, InputError
from roadworthy.core.files import TEMPORARY, check_links_inside, inside, remove
from roadworthy.core.files import write_bytes as write_bytes
from roadworthy.core.files import write_json as write_json
from roadworthy.core.hashing import digest_file
from roadworthy.core.manifests import MANIFEST, drop_damaged, is_committed, is_whole, named_parts, read_manifest
from roadworthy.core.record import RECORD, SCHEMA, RunRecord, read_record

LOCK = ".lock"
STUDY = "study.yaml"
NODES = ("readouts", "artifacts")
"""Where the folders of cases and artifacts lie, each with a manifest once it is finished."""


class RunFolder:
    """One run's folder. Reading needs nothing; writing needs the lock."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """Open a folder that must hold a run of a schema we can read."""
        folder = cls(path)
        if not (folder.path / RECORD).is_file():
            if (folder.path / LOCK).is_file():
                raise InputError(folder._unfinished())
            raise InputError(f"{path} is no run: it holds no {RECORD}")
        folder.record()
        check_links_inside(folder.path)
        return folder

    def check_finished(self) -> None:
        """Refuse a run that did not come to its end."""
        if not self.record().finished:
            raise InputError(self._unfinished())

    def _unfinished(self) -> str:
        """Why a run has no results yet: it is being written, or it was stopped."""
        if self._is_held():
            return f"{self.path} is still being written by another process: wait until it has finished"
        return f"the run in {self.path} was stopped before it finished; run the same command again to go on"

    def _is_held(self) -> bool:
        if not (self.path / LOCK).is_file():
            return False
        with (self.path / LOCK).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def check_usable(self, fresh: bool = False) -> None:
        """Refuse a path that holds something else than a run, a link that leads outside, or an earlier version's run.

        The last may be replaced by one that is `fresh`. Changes nothing.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file: give a folder for the run")
        if not self.path.is_dir():
            return
        names = {entry.name for entry in self.path.iterdir()}
        if names and not (LOCK in names or (RECORD in names and (STUDY in names or self.is_finished))):
            raise InputError(f"{self.path} is not empty and holds no run: choose another folder with `out=`")
        check_links_inside(self.path)
        schema = self._schema()
        if schema > SCHEMA:
            RunFolder.existing(self.path)
        if 0 < schema < SCHEMA and not fresh:
            raise InputError(
                f"{self.path} holds a run of an earlier version (run schema {schema}), which can be read but "
                "not gone on with: choose another folder with `out=`, or replace it with `fresh=True`"
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for writing; a second writer is refused at once. The lock dies with the process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("a")
        except OSError as error:
            raise InputError(f"cannot write to {self.path}: {error.strerror}") from None
        with file, writing(self.path):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is writing to {self.path}: wait for it or choose another folder"
                ) from None
            yield

    def sweep(self) -> None:
        """Remove what killed writers left half-written, and what is not as it was written; only for who holds the lock.

        Of a case's readouts the damaged parts are dropped; an artifact is one thing, and is dropped as a whole.
        """
        folders = [self.path / name for name in (*NODES, "tables", "media")]
        left = [*self.path.glob(f"*{TEMPORARY}"), *(p for f in folders for p in f.rglob(f"*{TEMPORARY}"))]
        for path in left:
            if path.is_file():
                path.unlink()
        for node in self._nodes():
            if node.parent.name == "artifacts" and is_committed(node) and not is_whole(node):
                remove(*sorted(node.iterdir(), key=lambda path: path.name == MANIFEST), node)
            elif node.parent.name == "readouts":
                drop_damaged(node)

    def _nodes(self) -> list[Path]:
        """The folders of cases and artifacts, finished or not."""
        return sorted(path for name in NODES for path in self.path.glob(f"{name}/*") if path.is_dir())

    @property
    def is_finished(self) -> bool:
        """Whether a run has come to its end here: it has a record that can be read."""
        try:
            RunFolder.existing(self.path)
        except InputError:
            return False
        return True

    def _schema(self) -> int:
        """The schema of the run that is here; 0 where its record is missing or damaged."""
        try:
            schema = json.loads((self.path / RECORD).read_text(encoding="utf-8")).get("schema")
        except (OSError, ValueError, RecursionError, AttributeError):
            return 0
        return schema if isinstance(schema, int) else 0

    def earlier_record(self) -> RunRecord | None:
        """The content of run.json where there is one that is whole."""
        return self.record() if self.is_finished else None

    def clear(self) -> None:
        """Remove everything but the lock, run.json first; only for who holds the lock."""
        entries = sorted(self.path.iterdir(), key=lambda entry: entry.name != RECORD)
        remove(*(entry for entry in entries if entry.name != LOCK))

    def clear_results(self) -> None:
        """Remove what was computed from readouts, so that nothing old stands beside what is new."""
        for path in [*self.path.glob("tables/*"), self.path / "verdict.json", self.path / "report.html"]:
            path.unlink(missing_ok=True)

    def clear_pictures(self) -> None:
        """Remove pictures that are not as recorded; the others may stay: they are named by what they show."""
        earlier = self.earlier_record()
        recorded = earlier.files if earlier else {}
        for path in self.path.glob("media/*"):
            if recorded.get(f"media/{path.name}") != digest_file(path):
                path.unlink()

    def case(self, key: str) -> Path:
        """The folder of one case's readouts."""
        return inside(self.path, "readouts", key)

    def artifact(self, recipe: str) -> Path:
        """The folder of a built thing, by the hash of its recipe."""
        return inside(self.path, "artifacts", recipe)

    def record(self) -> RunRecord:
        """The content of run.json."""
        return read_record(self.path)

    def write_record(self, record: RunRecord) -> None:
        """Write run.json, last of all, with the SHA-256 of every other file but the parts that manifests name."""
        parts = {node / name for node in self._nodes() for name in named_parts(node)}
        files = {str(path.relative_to(self.path)): digest_file(path) for path in self.files() if path not in parts}
        write_json(self.path / RECORD, record.model_copy(update={"files": files}).dump())

    def update_record(self, names: Iterable[str], **changes: Any) -> None:
        """Write run.json with new hashes for the files of these names alone: all others must stay as recorded.

        That of an earlier version keeps its form.
        """
        content = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
        files = content["files"] | {name: digest_file(self.path / name) for name in names}
        write_json(self.path / RECORD, {**content, **changes, "files": dict(sorted(files.items()))})

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every file, from run.json or the manifest of its folder; "" for a manifest that is damaged."""
        hashes = dict(self.record().files)
        for node in self._nodes():
            folder = node.relative_to(self.path)
            if str(folder / MANIFEST) in hashes:
                hashes |= {str(folder / name): sha for name, sha in named_parts(node).items()}
                try:
                    read_manifest(node)
                except DamagedFile:
                    hashes[str(folder / MANIFEST)] = ""
        return hashes

    def files(self) -> list[Path]:
        """Every file of the run but run.json, the lock and what a killed writer left, in a stable order."""
        skip = {self.path / RECORD, self.path / LOCK}
        return sorted(p for p in self.path.rglob("*") if p.is_file() and p not in skip and p.suffix != TEMPORARY)

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Store a table as Parquet (exact) and CSV (for people)."""
        folder = self.path / "tables"
        folder.mkdir(exist_ok=True)
        arrow = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        write_parquet(folder / f"{name}.parquet", arrow)
        write_csv(folder / f"{name}.csv", table)

    def table_names(self) -> list[str]:
        """The tables there are."""
        return sorted(path.stem for path in (self.path / "tables").glob("*.parquet"))

    def table_columns(self) -> dict[str, list[str]]:
        """The columns of every table that has rows, by its name; one that cannot be read is left out."""
        columns = {}
        for name in self.table_names():
            with contextlib.suppress(OSError, pa.ArrowException):
                stored = pq.read_metadata(self.path / "tables" / f"{name}.parquet")
                if stored.num_rows:
                    columns[name] = list(stored.schema.to_arrow_schema().names)
        return columns

    def table(self, name: str) -> pd.DataFrame:
        """A stored table."""
        path = inside(self.path, "tables", f"{name}.parquet")
        if not path.is_file():
            names = ", ".join(self.table_names()) or "none"
            raise InputError(f"{self.path} has no table {name!r}; it has {names}")
        try:
            frame: pd.DataFrame = pq.read_table(path).to_pandas()
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"table {path} cannot be read: {error}; run the study again to make it anew") from None
        return frame


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk refuses (full, read-only) into one sentence."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        raise InputError(f"cannot write to {path}: {what}; fix that and run again to resume") from error


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV that a spreadsheet can open: names that begin like a formula are marked as text."""
    names = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    escaped = {name: pd.Series([*map(escape_cell, table[name])], table.index, dtype=object) for name in names}
    safe = table.assign(**escaped).rename(columns=escape_cell)
    text = CsvText()
    safe.to_csv(text, index=False, lineterminator=ENDING)
    write_bytes(path, text.getvalue().encode())


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write an Arrow table as Parquet, whole or not at all, with the same bytes every time."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    write_bytes(path, sink.getvalue().to_pybytes())
