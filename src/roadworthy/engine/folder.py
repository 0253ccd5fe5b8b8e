"""A run on disk: where things lie, who may write, and how, so that a kill never leaves a half-written file.

RUN/
  study.yaml  run.json                        what was asked; provenance and a SHA-256 per file
  readouts/<case>/part-*.parquet              immutable parts, with manifest.json: see core/manifests.py
  artifacts/<hash>/                           built things, with manifest.json, which tells their competence
  tables/<name>.parquet + .csv                measures and statistics
  media/                                      pictures the report shows
  verdict.json  verdicts.json  report.html    the run's own verdict; every verdict there was

In runs of schema 1, readouts lie under the name of the protocol that asked for them. A run at an address such as
s3://bucket/run has the same layout there, and a mirror on this machine: see engine/mirror.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from roadworthy.core.cells import ENDING, CsvText, escape_cell
from roadworthy.core.errors import DamagedFile, InputError
from roadworthy.core.files import check_links_inside, inside, is_temporary, json_bytes, remove, remove_if_empty
from roadworthy.core.files import write_bytes as write_bytes
from roadworthy.core.files import write_json as write_json
from roadworthy.core.hashing import digest_file, resealed, sealed
from roadworthy.core.manifests import (
    MANIFEST,
    drop_damaged,
    is_committed,
    is_whole,
    named_parts,
    own_node,
    read_manifest,
)
from roadworthy.core.parquet import UnreadableParquet, parquet_frame
from roadworthy.core.record import HISTORY, RECORD, SCHEMA, RunRecord, read_record, recorded_files, recorded_hash
from roadworthy.core.remote import parse_location
from roadworthy.engine.locking import held, is_held
from roadworthy.engine.mirror import LOCK as LOCK
from roadworthy.engine.mirror import Mirror, Role

STUDY = "study.yaml"
RESULTS = (STUDY, "verdict.json", HISTORY, "report.html")
"""The files of a run that lie in its folder itself, run.json apart."""
NODES = ("readouts", "artifacts")
"""Where the folders of cases and artifacts lie, each with a manifest once it is finished."""
ENDINGS = {"tables": (".parquet", ".csv", ".tex"), "media": (".png",)}
"""Where tables and pictures lie, and how the names of their files end."""


class RunFolder:
    """One run's folder. Reading needs nothing; writing needs the lock.

    Of a run at an address, `path` is its mirror. What is written there is published by the functions of that name,
    which do nothing for a run on a local disk.
    """

    def __init__(self, path: str | Path, role: Role = "holder") -> None:
        location = parse_location(path)
        self.mirror = Mirror(location, role) if isinstance(location, str) else None
        self.path = self.mirror.path if self.mirror else Path(location).absolute()
        self.written: dict[Path, str] = {}
        """The SHA-256 of parts and manifests, by who wrote them: by that nodes are committed and recorded."""

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """Open a folder that must hold a run of a schema we can read."""
        folder = cls(path)
        folder.refresh()
        if not (folder.path / RECORD).is_file():
            if (folder.path / LOCK).is_file() or (folder.mirror and folder.files()):
                raise InputError(folder._unfinished())
            raise InputError(f"{path} is no run: it holds no {RECORD}")
        folder.record(changed_too=True)
        check_links_inside(folder.path)
        return folder

    def check_finished(self) -> None:
        """Refuse a run that did not come to its end."""
        if not self.record(changed_too=True).finished:
            raise InputError(self._unfinished())

    def check_idle(self) -> None:
        """Refuse a run that another process is writing to."""
        if is_held(self.path / LOCK):
            raise InputError(self._unfinished())

    def _unfinished(self) -> str:
        """Why a run has no results yet: it is being written, or it was stopped."""
        if is_held(self.path / LOCK):
            return f"{self.path} is still being written by another process: wait until it has finished"
        if holder := self.mirror.holder() if self.mirror else "":
            return (
                f"{self.path} is being written by {holder}, or was stopped while it was: wait until it has finished, "
                "or run the same command again to go on"
            )
        return f"the run in {self.path} was stopped before it finished; run the same command again to go on"

    def refresh(self, *, again: bool = False, signs: Collection[str] = (RECORD,)) -> None:
        """Fetch what is at the address of the run, for a reader; with `again` every byte of it.

        What has neither a lock nor the files `signs` is no run. Where a process of this machine is writing to it, its
        mirror is not touched.
        """
        if self.mirror is None:
            return
        if is_held(self.path / LOCK):
            raise InputError(self._unfinished())
        with reading(self.path):
            self.mirror.check_usable(signs)
            self.mirror.fetch(again=again, first=self.check_idle)

    def publish_part(self, part: Path) -> None:
        """Let a part that was written, with its receipt, count at the address of the run as well."""
        if self.mirror:
            self.mirror.publish_part(part)

    def publish(self, node: Path) -> None:
        """Make the folder of a case or an artifact at the address of the run what it is here."""
        if self.mirror:
            self.mirror.publish(node)

    @property
    def address(self) -> str:
        """Where the run is, for other machines too: its address, or the path of its folder."""
        return self.mirror.address if self.mirror else str(self.path)

    def publish_all(self) -> None:
        """Bring the address of the run in line with what is here, for others who read it there."""
        if self.mirror:
            self.mirror.settle()

    def fetch_all(self) -> None:
        """Fetch what others put to the address of the run, for who holds it."""
        if self.mirror:
            self.mirror.fetch()

    def fetch_node(self, node: Path) -> None:
        """Fetch the folder of a case or an artifact from the address of the run: for who does not hold the run."""
        if self.mirror:
            self.mirror.fetch_node(node)

    def check_usable(self, fresh: bool = False) -> None:
        """Refuse a path that holds something else than a run, a link that leads outside, or an earlier version's run.

        The last may be replaced by one that is `fresh`. Changes nothing.
        """
        self.refresh(signs=(RECORD, STUDY))
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file: give a folder for the run")
        if not self.path.is_dir():
            return
        names = {entry.name for entry in self.path.iterdir()}
        if names and not (self.mirror or LOCK in names or (RECORD in names and (STUDY in names or self.is_finished))):
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
        held_there = self.mirror.held() if self.mirror else contextlib.nullcontext()
        with writing(self.path), held(self.path / LOCK), held_there:
            yield

    def sweep(self) -> None:
        """Remove what killed writers left half-written, and what is not as it was written; only for who holds the lock.

        Of a case's readouts the damaged parts are dropped; an artifact is one thing, and is dropped as a whole.
        """
        self.remove_half_written(".", *ENDINGS, *NODES)
        for node in self._nodes():
            if node.parent.name == "artifacts" and is_committed(node) and not is_whole(node, own_node(node)):
                remove(*sorted(node.iterdir(), key=lambda path: path.name == MANIFEST), node)
            elif node.parent.name == "readouts":
                drop_damaged(node, own_node(node))
                remove_if_empty(node)
        if self.mirror:
            self.mirror.settle()

    def remove_half_written(self, *names: str) -> None:
        """Remove what killed writers left half-written in the run (".") or below these folders, where nobody writes."""
        for path in [path for name in names for path in (self.path / name).glob("*" if name == "." else "**/*")]:
            if is_temporary(path.name) and path.is_file():
                path.unlink()

    def _nodes(self) -> list[Path]:
        """The folders of cases and artifacts, finished or not."""
        return sorted(path for name in NODES for path in self.path.glob(f"{name}/*") if path.is_dir())

    @property
    def is_finished(self) -> bool:
        """Whether a run has come to its end here: it has a record that can be read."""
        try:
            RunFolder.existing(self.path).record()
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
        """Remove all but the lock and the history of verdicts, run.json first; only for who holds the lock."""
        entries = sorted(self.path.iterdir(), key=lambda entry: entry.name != RECORD)
        remove(*(entry for entry in entries if entry.name not in (LOCK, HISTORY)))

    def clear_results(self) -> None:
        """Remove what was computed from readouts, so that nothing old stands beside what is new."""
        for path in [*self._of_kind("tables"), self.path / "verdict.json", self.path / "report.html"]:
            path.unlink(missing_ok=True)

    def _of_kind(self, folder: str) -> list[Path]:
        """The tables or the pictures that are there, by how their names end."""
        paths = (self.path / folder).glob("*")
        return sorted(path for path in paths if path.suffix in ENDINGS[folder] and path.is_file())

    def clear_pictures(self) -> None:
        """Remove pictures that are not as recorded; the others may stay: they are named by what they show."""
        earlier = self.earlier_record()
        recorded = earlier.files if earlier else {}
        for path in self._of_kind("media"):
            if recorded.get(f"media/{path.name}") != digest_file(path):
                path.unlink()

    def case(self, key: str) -> Path:
        """The folder of one case's readouts."""
        return inside(self.path, "readouts", key)

    def artifact(self, recipe: str) -> Path:
        """The folder of a built thing, by the hash of its recipe."""
        return inside(self.path, "artifacts", recipe)

    def record(self, *, changed_too: bool = False) -> RunRecord:
        """The content of run.json; one that somebody `changed_too` is for who says what is wrong with the run."""
        return read_record(self.path, changed_too=changed_too)

    def write_record(self, record: RunRecord) -> None:
        """Write run.json, last of all, with the SHA-256 of every file of the run but the parts that manifests name.

        A file that somebody else put there is none of the run's.
        """
        own = [self.path / name for name in RESULTS if (self.path / name).is_file()]
        own += [path for name in ENDINGS for path in self._of_kind(name)]
        for node in self._nodes():
            own += [node / MANIFEST] if (node / MANIFEST).is_file() else self.files_below(node)
        files = {str(path.relative_to(self.path)): self.written.get(path) or digest_file(path) for path in sorted(own)}
        content = record.model_copy(update={"files": files}).dump()
        write_json(self.path / RECORD, sealed(json.loads(json_bytes(content))))
        self.publish_record()

    def publish_record(self) -> None:
        """Put run.json at the address of the run, as it is now."""
        if self.mirror:
            self.mirror.publish_file(RECORD)

    def update_record(self, names: Iterable[str], **changes: Any) -> None:
        """Write run.json with new hashes for the files of these names alone: all others must stay as recorded.

        That of an earlier version keeps its form.
        """
        content = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
        files = content["files"] | {name: digest_file(self.path / name) for name in names}
        self.change_record(files=dict(sorted(files.items())), **changes)

    def change_record(self, **changes: Any) -> None:
        """Write run.json with other values; where it was changed by somebody, its seal stays broken."""
        write_json(self.path / RECORD, resealed(json.loads((self.path / RECORD).read_text(encoding="utf-8")), changes))

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every file, from run.json or the manifest of its folder; "" for a manifest that is damaged."""
        hashes = dict(self.record(changed_too=True).files)
        for node in self._nodes():
            folder = node.relative_to(self.path)
            if str(folder / MANIFEST) in hashes:
                hashes |= {str(folder / name): sha for name, sha in named_parts(node).items()}
                try:
                    read_manifest(node, own_node(node))
                except DamagedFile:
                    hashes[str(folder / MANIFEST)] = ""
        return hashes

    def files(self) -> list[Path]:
        """Every file of the run but run.json, the lock and what a killed writer left, in a stable order."""
        skip = {self.path / RECORD, self.path / LOCK}
        return [path for path in self.files_below(self.path) if path not in skip]

    def files_below(self, folder: Path) -> list[Path]:
        """Every file in a folder of the run and below it, but for what a killed writer left, in a stable order."""
        return sorted(path for path in folder.rglob("*") if path.is_file() and not is_temporary(path.name))

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Store a table as Parquet (exact) and CSV (for people)."""
        folder = self.path / "tables"
        folder.mkdir(exist_ok=True)
        arrow = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        write_parquet(folder / f"{name}.parquet", arrow)
        write_csv(folder / f"{name}.csv", table)

    def table_names(self) -> list[str]:
        """The tables there are; of a finished run those that are its own."""
        names = sorted(path.stem for path in (self.path / "tables").glob("*.parquet"))
        with contextlib.suppress(InputError):  # run.json is damaged: nothing is known
            files, finished, _ = recorded_files(self.path)
            return [name for name in names if not finished or f"tables/{name}.parquet" in files]
        return names

    def table_columns(self) -> dict[str, list[str]]:
        """The columns of every table that has rows, by its name; one that cannot be read is left out."""
        columns = {}
        for name in self.table_names():
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                stored = pq.read_metadata(self.path / "tables" / f"{name}.parquet")
                if stored.num_rows:
                    columns[name] = list(stored.schema.to_arrow_schema().names)
        return columns

    def table_shape(self, name: str) -> tuple[int, int]:
        """The rows and columns of a table; none of one that cannot be read."""
        try:
            stored = pq.read_metadata(inside(self.path, "tables", f"{name}.parquet"))
        except (OSError, ValueError, pa.ArrowException):
            return 0, 0
        return stored.num_rows, stored.num_columns

    def table(self, name: str) -> pd.DataFrame:
        """A stored table."""
        path = inside(self.path, "tables", f"{name}.parquet")
        if not path.is_file():
            names = ", ".join(self.table_names()) or "none"
            raise InputError(f"{self.path} has no table {name!r}; it has {names}")
        try:
            return parquet_frame(path, recorded_hash(self.path, f"tables/{name}.parquet"))
        except UnreadableParquet as error:
            raise InputError(f"table {path} cannot be read: {error}; run the study again to make it anew") from None


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk refuses (full, read-only) into one sentence."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        raise InputError(f"cannot write to {path}: {what}; fix that and run again to resume") from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the file system of an address refuses to a reader into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def open_store(address: str, role: Role = "worker") -> RunFolder:
    """The run at an address, or a path, for a driver or a worker on any machine, while another process holds it.

    It takes no lock and fetches nothing by itself: `fetch_node` brings the folder of an artifact or a case that is
    needed into a mirror of its own, and `publish_part` puts what was written to the address; a worker drops it here
    then.
    """
    return RunFolder(address, role)


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV: see `csv_bytes`."""
    write_bytes(path, csv_bytes(table))


def csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as CSV that a spreadsheet can open: names that begin like a formula are marked as text."""
    names = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    escaped = {name: pd.Series([*map(escape_cell, table[name])], table.index, dtype=object) for name in names}
    safe = table.assign(**escaped).rename(columns=escape_cell)
    text = CsvText()
    safe.to_csv(text, index=False, lineterminator=ENDING)
    return text.getvalue().encode()


def write_parquet(path: Path, table: pa.Table) -> str:
    """Write an Arrow table as Parquet, whole or not at all, with the same bytes every time; returns their SHA-256."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    content = sink.getvalue().to_pybytes()
    write_bytes(path, content)
    return sha256(content).hexdigest()
