"""Replaying a bundle: its signature, its files, what follows from its readouts, and a share of it asked again."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from roadworthy.auditing.archive import INDEX, Archive
from roadworthy.auditing.making import LeftOut, absent_files, index_of
from roadworthy.auditing.outcome import Check, Replay
from roadworthy.auditing.rerun import Reruns, rerun_share
from roadworthy.auditing.signing import is_signed_by
from roadworthy.auditing.substituting import Substitutes, check_given
from roadworthy.auditing.tolerances import declared, same_machine
from roadworthy.core.errors import InputError, RoadworthyError, show_as
from roadworthy.core.record import RECORD, RunRecord
from roadworthy.engine.folder import STUDY, RunFolder, csv_bytes
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.engine.provenance import environment
from roadworthy.plugins import GivenPlugins
from roadworthy.protocols.latex import to_latex
from roadworthy.stored import Run, open_run
from roadworthy.study import Study, load_study

WRITTEN_WITH = ("roadworthy", "pandas", "pyarrow")
"""Packages whose version decides how tables and the report are written."""


def replay_bundle(
    bundle: str | Path,
    *,
    key: str | Path | None = None,
    share: float = 0.01,
    data: str | Path | Sequence[str | Path] = (),
    model: Mapping[str, str | Path] | Sequence[str] = (),
    seed: int | None = None,
    device: str = "auto",
    plugins: GivenPlugins = (),
    trust: bool = False,
    unpickle: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Replay:
    """Check a bundle on another machine: was it signed, is it whole, do its tables and verdict follow, do models agree?

    key     the public key (PEM) of who must have signed it; it comes from you, never from the bundle
    share   of the stored chunks that are shown to the models again, at least one per model; 0 reruns nothing
    data    a path in place of the test data, or `role=path` (`train=...`, `outliers/tiny=...`), where the paths of the
            study are not on this machine;  model: the same by name, `{"v3": "v3.onnx"}` or `["v3=v3.onnx"]`
    seed    decides which chunks; drawn anew where it is not given, and said

    Nothing is written but to a folder that is removed again. What cannot be read is an `InputError`.
    """
    if not 0 <= share <= 1:
        raise InputError(f"`share=` lies between 0 and 1, not {share!r}")
    named = [f"{name}={path}" for name, path in model.items()] if isinstance(model, Mapping) else [*model]
    paths = [data] if isinstance(data, str | Path) else [*data]
    given = Substitutes.parse([str(path) for path in paths], named)
    seed = secrets.randbelow(2**32) if seed is None else seed
    archive = Archive(Path(bundle))
    replaying = _Replaying(archive, given, share, seed, plugins, trust)
    allowed = {"trust": trust, "unpickle": unpickle, "device": device}
    with tempfile.TemporaryDirectory(prefix="roadworthy-replay-") as folder:
        return replaying.done(Path(folder), None if key is None else Path(key), allowed, progress)


class _Replaying:
    """A replay while it goes on: check after check, until one says that the rest would mean nothing."""

    def __init__(
        self, archive: Archive, given: Substitutes, share: float, seed: int, plugins: GivenPlugins, trust: bool
    ) -> None:
        self.archive, self.given, self.share, self.seed = archive, given, share, seed
        self.plugins, self.trust = plugins, trust
        self.checks: list[Check] = []
        self.verdict, self.machine, self.reruns = "not known", list[str](), Reruns()

    def done(self, folder: Path, key: Path | None, allowed: Mapping[str, Any], progress: ProgressBar) -> Replay:
        """Do all checks that still mean something."""
        here = environment()
        for _ in self._steps(folder, key, allowed, progress, here):
            if self.checks[-1].status == "differs" and self.checks[-1].name in ("signature", "files"):
                self._add("run", "not checked", ["nothing of it was read: the bundle is not what was signed or listed"])
                break
        return Replay(
            bundle=self.archive.path,
            study=str(self.archive.index.get("study", "")),
            verdict=self.verdict,
            checks=tuple(self.checks),
            share=self.share,
            seed=self.seed,
            machine=tuple(self.machine),
            environment=here,
            reruns=self.reruns,
        )

    def _steps(
        self, folder: Path, key: Path | None, allowed: Mapping[str, Any], progress: ProgressBar, here: dict[str, Any]
    ) -> Iterator[None]:
        self._check_signature(key)
        yield
        home = folder / "run"
        home.mkdir()
        show_as(home, self.archive.path.name)
        with progress("unpacking the bundle", sum(own.size for own in self.archive.files.values())) as advance:
            problems = self.archive.unpack(home, advance)
        self._add("files", *_found(problems, f"{len(self.archive.files):,} files are what the index says"))
        yield
        run = open_run(home, plugins=self.plugins, trust=self.trust)
        run.folder.check_finished()
        record = run.record
        self.machine = same_machine([record.environment, *record.earlier_environments], here)
        study = self._study(run)
        with progress("recomputing tables and verdict", 0):
            self._check_run(run, record)
        yield
        self._check_written(run, record, here)
        yield
        fresh = folder / "fresh"
        fresh.mkdir()
        self._rerun(run, study, fresh, allowed, progress, here)
        yield

    def _add(self, name: str, status: Any, words: Sequence[str]) -> None:
        self.checks.append(Check(name, status, tuple(words)))

    def _study(self, run: Run) -> Study | str:
        """The study of the run, or why it cannot be read here; what is given for nothing in it is an `InputError`."""
        try:
            study, _ = load_study(run.path / STUDY, plugins=self.plugins, trust=self.trust)
        except RoadworthyError as error:
            return str(error)
        check_given(study, self.given)
        return study

    def _check_signature(self, key: Path | None) -> None:
        signature = self.archive.signature
        if key is None:
            why = "it is not signed" if signature is None else "no public key was given (`key=`)"
            self._add("signature", "not checked", [f"{why}: nothing says who made the bundle"])
        elif signature is None:
            self._add("signature", "differs", [f"the bundle is not signed, but must be by {key}"])
        elif is_signed_by(self.archive.index_bytes, signature, key):
            self._add("signature", "agrees", [f"signed by the owner of {key}"])
        else:
            self._add("signature", "differs", [f"it was not signed with {key}, or changed since: {INDEX} does not fit"])

    def _check_run(self, run: Run, record: RunRecord) -> None:
        """Whether hashes fit, tables and verdict follow from the readouts, and the index says what the record says."""
        left_out = _left_out(self.archive.index)
        examined = run.examine(absent_files(left_out))
        expected = index_of(record, self.archive.files, left_out)
        problems = [
            f"{INDEX} says other {name} than {RECORD}"
            for name in expected
            if expected[name] != self.archive.index.get(name)
        ]
        problems += examined.problems
        self.verdict = run.status
        count = len(examined.recomputed)
        self._add("run", *_found(problems, f"{count} tables and the verdict ({self.verdict}) follow from the readouts"))
        others = [name for name in run.folder.table_names() if name not in examined.recomputed]
        if others and not problems:
            listed = ", ".join(others)
            self._add("run", "not checked", [f"beyond their hash: pictures, and the tables {listed}"])

    def _check_written(self, run: Run, record: RunRecord, here: Mapping[str, Any]) -> None:
        """Whether CSV, LaTeX and the report are what is written from the stored tables, where versions are the same."""
        before, now = record.environment.get("packages", {}), here["packages"]
        other = [f"{name} {before.get(name)}" for name in WRITTEN_WITH if before.get(name) != now.get(name)]
        if self.checks[-1].status == "differs":
            return
        if other:
            why = f"CSV, LaTeX and report were written with {', '.join(other)}, which may write them otherwise"
            self._add("written files", "not checked", [f"beyond their hash: {why}"])
            return
        problems = [*_unlike_tables(run)]
        self._add(
            "written files", *_found(problems, "CSV, LaTeX and report are what the stored tables and verdict give")
        )

    def _rerun(
        self,
        run: Run,
        study: Study | str,
        fresh: Path,
        allowed: Mapping[str, Any],
        progress: ProgressBar,
        here: Mapping[str, Any],
    ) -> None:
        """Ask models again and say what came of it."""
        if isinstance(study, str):
            self._add("rerun", "not checked", [f"the study cannot be read here: {study}"])
            return
        if not self.share:
            self._add("rerun", "not checked", ["no model was asked again: `share=0`"])
            return
        record = run.record
        before = record.environment.get("packages", {}).get("roadworthy")
        options: dict[str, Any] = {
            "share": self.share,
            "seed": self.seed,
            "exact": not self.machine,
            "fresh": fresh,
            "allowed": allowed,
            "same_version": before == here["packages"].get("roadworthy"),
        }
        try:
            self.reruns = rerun_share(run.folder, study, self.given, **options, progress=progress)
        except RoadworthyError as error:
            self._add("rerun", "not checked", [f"the study cannot be run here: {error}"])
            return
        reruns = self.reruns
        if absent := [f"{what}: {reason}" for what, reason in reruns.absent.items()]:
            self._add("rerun", "not checked", absent)
        problems = [*reruns.differences]
        problems += [
            f"{chunk.file} ({chunk.system}, {chunk.stimulus}): {words}"
            for chunk in reruns.chunks
            for words in chunk.differences
        ]
        if not reruns.chunks and not problems:
            if not absent:
                self._add("rerun", "not checked", ["there was nothing to rerun"])
            return
        how = f"within tolerances ({'; '.join(self.machine)}): {declared()}" if self.machine else "to the bit"
        asked = len({(chunk.system) for chunk in reruns.chunks})
        agree = (
            f"{len(reruns.chunks)} of {reruns.of} chunks ({reruns.images:,} answers of {asked} "
            f"system{'s' if asked != 1 else ''}, seed {self.seed}) are as stored, {how}"
        )
        self._add("rerun", *_found(problems, agree))


def _found(problems: Sequence[str], otherwise: str) -> tuple[str, list[str]]:
    """The status of a check and its words: the problems, or what is right where there are none."""
    return ("differs", [*problems]) if problems else ("agrees", [otherwise])


def _left_out(index: Mapping[str, Any]) -> dict[str, LeftOut]:
    """The built things that a bundle says it lacks; only files of artifacts may be lacking."""
    left_out = {}
    try:
        for recipe, entry in index["left_out"].items():
            files = tuple(map(str, entry["files"]))
            if not all(name.startswith(f"artifacts/{recipe}/") for name in files):
                raise ValueError("a file that is left out is none of its artifact")
            left_out[str(recipe)] = LeftOut(str(entry["system"]), str(entry["builder"]), files, int(entry["bytes"]))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{INDEX} of the bundle cannot be read: what is left out is not said as it should ({error})"
        ) from None
    return left_out


def _unlike_tables(run: Run) -> Iterator[str]:
    """The files for people that are not what the stored tables and the verdict give, as a sentence each."""
    folder: RunFolder = run.folder
    for name in folder.table_names():
        table = folder.table(name)
        texts = {"csv": csv_bytes(table)}
        with suppress(ValueError, TypeError):
            texts["tex"] = to_latex(table).encode()
        for ending, expected in texts.items():
            path = folder.path / "tables" / f"{name}.{ending}"
            if path.is_file() and path.read_bytes() != expected:
                yield f"tables/{path.name} is not what tables/{name}.parquet gives"
    page = folder.path / "report.html"
    if page.is_file() and page.read_bytes() != run.rendered():
        yield "report.html is not what the stored tables and the verdict give"
