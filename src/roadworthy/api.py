"""The public Python API: evaluate a model, run a study, open a run."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import roadworthy.uncertainty  # noqa: F401 (registers)
from roadworthy import report
from roadworthy.core import record as records
from roadworthy.core.errors import InputError, ModelError, from_here
from roadworthy.core.files import inside
from roadworthy.core.hashing import digest_file
from roadworthy.core.record import RECORD, RunRecord
from roadworthy.core.validation import check_number, parse_size, validated
from roadworthy.data import open_dataset
from roadworthy.engine.artifacts import find_artifact
from roadworthy.engine.folder import STUDY, RunFolder, write_bytes, write_json, writing
from roadworthy.engine.local import Executor, LocalExecutor, Outcome, timing_tables
from roadworthy.engine.plan import THREADS, Graph, Showing
from roadworthy.engine.progress import ProgressBar as ProgressBar
from roadworthy.engine.progress import no_progress as no_progress
from roadworthy.engine.progress import terminal_progress as terminal_progress
from roadworthy.engine.provenance import environment
from roadworthy.engine.readouts import read_case, read_columns
from roadworthy.engine.recording import node_records, source_record
from roadworthy.metrics import current_name, stored_name
from roadworthy.models import kind_of
from roadworthy.models.check import CheckReport, check_model, open_given
from roadworthy.preparing import Given, check_criteria, check_study_size, model_builder, open_benches, remarks
from roadworthy.preparing import Prepared as Prepared
from roadworthy.preparing import prepare as prepare
from roadworthy.protocols import find_protocol, find_suite, protocol_of
from roadworthy.protocols.base import Evidence, Part, StoredCase
from roadworthy.protocols.comparison import ALPHA, MARGIN, check_question, choose_pairs, compare, load_systems
from roadworthy.protocols.export import export
from roadworthy.protocols.latex import to_latex
from roadworthy.protocols.pages import pages_of
from roadworthy.protocols.repeats.analysis import analyse
from roadworthy.study import load_study, parse_study
from roadworthy.verdict import (
    Criterion,
    Failed,
    Measurement,
    Verdict,
    criteria_file_of,
    failed_parts,
    history,
    judge,
    load_criteria,
)
from roadworthy.verdict.history import HISTORY, read_history
from roadworthy.verdict.judge import never_pass


class Run:
    """A finished run.

    `run.tables["classification"]` is a data frame; `run.verdict("criteria.yaml")` judges; `run.report()` writes and
    returns the report; `run.verify()` compares everything with its hashes and recomputes the tables.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder.existing(path)

    def __repr__(self) -> str:
        record = self.record
        images = sum(source.data.images for source in record.sources.values())
        facts = [
            f"models {', '.join(record.models)}" if record.models else "no models",
            *([f"{images:,} images"] if images else []),
            self._status(),
            f"{len(self.tables)} tables",
        ]
        return f"<{type(self).__name__} {record.study} in {from_here(self.path)}: {'; '.join(facts)}>"

    def __fspath__(self) -> str:
        """The run's folder, so that a run can be given wherever its path can."""
        return str(self.path)

    def _status(self) -> str:
        """The stored verdict in two words, or that there is none yet."""
        if not self.record.finished:
            return "not finished"
        try:
            return f"verdict {json.loads((self.path / 'verdict.json').read_text())['status']}"
        except (OSError, ValueError, LookupError, TypeError):
            return "verdict not readable"

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def record(self) -> RunRecord:
        """Provenance: run.json."""
        return self.folder.record()

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """Every table by name, read when asked for."""
        return _Tables(self.folder)

    @property
    def failures(self) -> list[Failed]:
        """What failed, each with its cause."""
        return [*failed_parts(self.record)]

    def verdict(self, criteria: str | Path | list[Any] | None = None) -> Verdict:
        """Judge the run against criteria (default: those of its own verdict). Writes nothing."""
        self.folder.check_finished()
        record = self.record
        chosen = load_criteria(record.criteria or None if criteria is None else criteria)
        check_criteria(chosen, stored_parts(self.folder, record), stored_settings(record))
        verdict = _judge(chosen, load_evidence(self.folder, record), self.folder, record)
        return replace(verdict, criteria_file=criteria_file_of(criteria))

    @property
    def has_other_criteria(self) -> bool:
        """Whether its own verdict is by other criteria than those that the study was run with."""
        return history.other_criteria(read_history(self.path))

    def save_verdict(self, verdict: Verdict) -> None:
        """Make a verdict and its criteria the run's own: verdict.json, run.json and the report show them.

        The verdict that was its own before stays in the history.
        """
        self.folder.check_finished()
        with self.folder.locked():
            self._check_history()
            self._note(verdict, "replaced")
            write_json(self.path / "verdict.json", verdict.to_json())
            self._render()
            self.folder.update_record(["verdict.json", "report.html"], criteria=verdict.criteria)

    def note_verdict(self, verdict: Verdict) -> None:
        """Add a verdict to the history, which the report lists; the run's own verdict stays.

        One that is in the history already, since the run's own verdict was made, changes nothing.
        """
        self.folder.check_finished()
        if self._with_entry(verdict, "judged") == read_history(self.path):
            return
        with self.folder.locked():
            self._check_history()
            self._note(verdict, "judged")
            self._render()
            self.folder.update_record(["report.html"])

    def _note(self, verdict: Verdict, made: history.Made) -> None:
        """One more entry of the history; only for who holds the lock, and before verdict.json is written."""
        _write_history(self.path, self._with_entry(verdict, made))
        self.folder.update_record([HISTORY])

    def _check_history(self) -> None:
        """Refuse to add to a history that was changed: the entry would bless it."""
        recorded = self.record.files.get(HISTORY)
        if recorded and not ((self.path / HISTORY).is_file() and digest_file(self.path / HISTORY) == recorded):
            raise InputError(f"{self.path / HISTORY} was changed or is missing: check the run with roadworthy verify")

    def _with_entry(self, verdict: Verdict, made: history.Made) -> list[history.Entry]:
        entry = history.make_entry(verdict.to_json(), verdict.criteria, made, utc_now(), verdict.criteria_file)
        return history.with_entry(read_history(self.path), entry)

    def conclude(self, record: RunRecord, verdict: Verdict) -> None:
        """End a run whose tables are written: verdict, report and the finished record; only for who holds the lock."""
        self._note(verdict, "study")
        write_json(self.path / "verdict.json", verdict.to_json())
        self.folder.write_record(record)
        self._render()
        self.folder.update_record(["report.html"], finished=utc_now())

    def report(self) -> Path:
        """Write report.html anew from the stored tables and pictures."""
        self.folder.check_finished()
        with self.folder.locked():
            path = self._render()
            self.folder.update_record(["report.html"])
        return path

    def _render(self) -> Path:
        path = self.path / "report.html"
        write_bytes(path, report.render(self.path, pages_of(self.path)).encode())
        return path

    def headline(self) -> list[str]:
        """What the run says, in a few lines of plain text: the verdict, then the main figures of each protocol."""
        return report.headline(self.path, pages_of(self.path))

    def file_problems(self) -> list[str]:
        """Files that are missing, changed or added, by their hashes in the run; and whether it is finished."""
        recorded = self.folder.hashes()
        found = {str(path.relative_to(self.path)): path for path in self.folder.files()}
        problems = [f"{name} is missing" for name in recorded if name not in found]
        problems += [f"{name} is not part of the run" for name in found if name not in recorded]
        problems += [
            f"{n} was changed" for n, path in found.items() if n in recorded and digest_file(path) != recorded[n]
        ]
        if not self.record.finished:
            problems.append("the run is not finished: run it again to resume")
        return problems

    def verify(self) -> list[str]:
        """What is wrong with the run: files missing, changed or added, tables that do not follow from the readouts."""
        problems = self.file_problems()
        if problems:
            return problems
        stored_names = self.folder.table_names()
        for name, table in _tables(load_evidence(self.folder, self.record)).items():
            if name in stored_names and not follows(table, self.folder.table(name)):
                problems.append(f"table {name} does not follow from the readouts")
        return problems + self._verdict_problems()

    def _verdict_problems(self) -> list[str]:
        """What is wrong with the verdict: it does not follow from what is stored, or its history does not fit it."""
        record = self.record
        problems = history.history_problems(self.path, record.criteria)
        stored = json.loads((self.path / "verdict.json").read_text())
        status = stored["status"] if "failed" in stored else never_pass(stored["status"], failed_parts(record))
        before = [status, *((criterion["id"], criterion["status"]) for criterion in stored["criteria"])]
        judged = _judge(load_criteria(record.criteria or None), load_evidence(self.folder, record), self.folder, record)
        if before != [judged.status, *((finding.criterion.id, finding.status) for finding in judged.findings)]:
            problems.append("verdict.json does not follow from the readouts and the criteria")
        return problems


def _tables(evidence: Mapping[str, Evidence]) -> dict[str, pd.DataFrame]:
    tables = {name: table for found in evidence.values() for name, table in found.tables().items()}
    return tables | analyse(tables)


class _Tables(Mapping[str, pd.DataFrame]):
    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._folder.table_names():
            raise KeyError(name)
        return self._folder.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._folder.table_names())

    def __len__(self) -> int:
        return len(self._folder.table_names())

    def __repr__(self) -> str:
        return f"<tables: {', '.join(self) or 'none'}>"


def follows(table: pd.DataFrame, stored: pd.DataFrame) -> bool:
    """Whether a stored table is this one, made anew from what the run holds.

    A table of an earlier version has its metrics by their former names, and lacks those that were added since; nothing
    else may be missing or other.
    """
    if "metric" in table and "metric" in stored:
        known = set(stored["metric"])
        names = [stored_name(metric, known) for metric in table["metric"]]
        table = table.assign(metric=[name or "" for name in names])
        table = table[[name is not None for name in names]].reset_index(drop=True)
    return same_table(table, stored)


def same_table(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Equal to the last printed digit that another machine's arithmetic keeps."""
    if not len(a) and not len(b):
        return True
    try:
        pd.testing.assert_frame_equal(_blank(a), _blank(b), check_dtype=False, rtol=1e-9, atol=1e-12)
    except AssertionError:
        return False
    return True


def _blank(table: pd.DataFrame) -> pd.DataFrame:
    """With None for every missing value of no number: a stored table knows no other."""
    mixed = [name for name in table.columns if table[name].dtype == object]
    return table.assign(**{name: table[name].where(table[name].notna(), None) for name in mixed})


def open_run(path: str | Path) -> Run:
    """Open a run folder."""
    return Run(path)


def stored_parts(folder: RunFolder, record: RunRecord) -> dict[str, list[Part]]:
    """What each protocol has of each source: its cases, their readouts read when asked for, and its context."""
    lost = {name: artifact.reason for name, artifact in record.artifacts.items() if artifact.status == "failed"}
    find = partial(find_artifact, folder, failures=lost)

    def stored(asked: records.AskedCase) -> StoredCase:
        case = record.cases[asked.case]
        home = inside(folder.path, case.folder)
        return StoredCase(
            system=asked.system,
            stimulus=case.stimulus.value(),
            labels=asked.labels,
            failure=case.reason if case.status == "failed" else "",
            hash=asked.case,
            load=partial(read_case, home),
            columns=partial(read_columns, home),
            artifact=find,
        )

    parts: dict[str, list[Part]] = {name: [] for name in record.protocols}
    changed = f"{folder.path / RECORD} was changed or is incomplete"
    for name, own in record.protocols.items():
        for source, part in own.sources.items():
            context = validated(find_protocol(name).context, part.context, f"{changed}: context of {name}")
            cases, class_names = [*map(stored, part.cases)], record.sources[source].data.class_names
            parts[name].append(Part(source, cases, context, class_names))
    return parts


def stored_settings(record: RunRecord) -> dict[str, Any]:
    """The settings of each protocol of a run."""
    changed = f"{RECORD} was changed or is incomplete"
    forms = {name: (find_protocol(name).settings, own.settings) for name, own in record.protocols.items()}
    return {name: validated(*settings, f"{changed}: settings of {name}") for name, settings in forms.items()}


def load_evidence(
    folder: RunFolder, record: RunRecord, workers: int = 1, seed: int | None = None
) -> dict[str, Evidence]:
    """What the stored readouts of a run say, by protocol; objects are resampled by the run's own seed or another."""
    seed, settings = record.seed if seed is None else seed, stored_settings(record)
    return {
        name: find_protocol(name).evidence_of(parts, settings[name], seed=seed, workers=workers)
        for name, parts in stored_parts(folder, record).items()
    }


def compare_runs(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    models: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    workers: int | None = None,
) -> pd.DataFrame:
    """Compare models on the same images, condition by condition (see `protocols.comparison.compare`).

    `runs` is a run or several, each by its path or as a `Run`. The first is the baseline: models of the others are
    compared with its model of the same name, or its only model with their only one. A single run compares its later
    models with its first. `models=("a", "b")` compares any two: b with a of a single run, or b of every later run with
    a of the first.
    """
    runs = [runs] if isinstance(runs, str | os.PathLike) else runs
    metrics = None if metrics is None else [current_name(metric) for metric in metrics]
    check_question(metrics, alpha, margin)
    folders = [RunFolder.existing(Path(path)) for path in runs]
    records = [folder.record() for folder in folders]
    names, several = [[*record.models] for record in records], any("" not in record.sources for record in records)
    pairs = load_systems(
        choose_pairs([os.fspath(path) for path in runs], names, models, several),
        [folder.path.name for folder in folders],
        [stored_parts(folder, record) for folder, record in zip(folders, records, strict=True)],
        [stored_settings(record) for record in records],
        metrics,
        alpha,
        workers or os.cpu_count() or 1,
    )
    return compare(pairs, metrics, alpha, margin)


def _judge(
    criteria: Sequence[Criterion], evidence: Mapping[str, Evidence], folder: RunFolder, record: RunRecord
) -> Verdict:
    """The verdict from the evidence of a run and from what failed in it by its record."""

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        return evidence[protocol_of(criterion, evidence).name].measure(criterion, confidence)

    of_thresholds = remarks(criteria, stored_parts(folder, record), stored_settings(record))
    return judge(criteria, measure, remarks=of_thresholds, failed=failed_parts(record))


def execute(
    prepared: Prepared,
    out: str | Path,
    *,
    workers: int | None = None,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
    executor: Executor | None = None,
) -> Run:
    """Run a prepared study into a folder; one that holds part of it already is resumed, unless it is to be `fresh`.

    Results that are there stay until all new ones are known: an attempt that fails leaves a finished run as it was.
    """
    workers = workers or os.cpu_count() or 1
    stored = prepared.stored_study().to_yaml()
    with opened_folder(out, stored, fresh) as folder:
        graph, before = prepared.plan.graph(), set(folder.files())
        executor = executor or LocalExecutor(workers, progress, f"testing {prepared.study.name}")
        outcome = executor.run(graph, folder)
        record = make_record(prepared, graph, outcome, folder)
        try:
            evidence = _evidence(prepared, outcome, folder, record, workers)
        except ModelError:
            if folder.is_finished:
                _take_back(folder, before)
            else:
                folder.write_record(record)
            raise
        folder.clear_pictures()
        not_shown = outcome.not_shown.union(graph.unshowable(outcome.failures))
        drawn = [planned for planned in prepared.plan.cases if planned.case.hash not in not_shown]
        with progress("computing tables", 0), ThreadPoolExecutor(1) as painter:
            pictures = {
                name: painter.submit(found.pictures, own, folder.path / "media")
                for name, found in evidence.items()
                if (own := [planned for planned in drawn if planned.protocol == name])
            }
            printed = {name: found.tables() for name, found in evidence.items()}
            tables = {name: table for own in printed.values() for name, table in own.items()}
            tables |= analyse(tables)
            painted = [picture.result() for picture in pictures.values()]
        timing = timing_tables(folder, graph, outcome)
        costs = [found.timing(*timing.values()) for found in evidence.values()]
        if not graph.artifacts:
            del timing["timing_artifacts"]
        replace_results(folder, stored, record)
        for some in (tables, timing, *costs, *painted):
            for name, table in some.items():
                folder.write_table(name, table)
        for protocol, some in (*printed.items(), *zip(evidence, costs, strict=True)):
            for name, table in some.items() if find_protocol(protocol).prints_latex else ():
                write_bytes(folder.path / "tables" / f"{name}.tex", to_latex(table).encode())
        run = Run(folder.path)
        verdict = _judge(prepared.criteria, evidence, folder, record)
        run.conclude(record, replace(verdict, criteria_file=criteria_file_of(prepared.study.criteria)))
    return run


def _evidence(
    prepared: Prepared, outcome: Outcome, folder: RunFolder, record: RunRecord, workers: int
) -> dict[str, Evidence]:
    """What the readouts say; an error where every case failed, or no protocol has any value."""
    asked = [planned.case.hash for planned in prepared.plan.cases if planned.system.underlying is not None]
    if all(case in outcome.failures for case in asked):
        raise ModelError(f"every case failed; the first: {outcome.failures[asked[0]]}")
    evidence = load_evidence(folder, record, workers)
    lost = [found.lost() for found in evidence.values()]
    if all(lost):
        raise ModelError(lost[0])
    return evidence


def _take_back(folder: RunFolder, before: Collection[Path]) -> None:
    """Remove the readouts that an attempt without any result has left in a finished run; what it built may stay."""
    for path in folder.files():
        if path not in before and not path.is_relative_to(folder.path / "artifacts"):
            path.unlink()


@contextmanager
def opened_folder(out: str | Path, study: str, fresh: bool = False) -> Iterator[RunFolder]:
    """The folder of a run, held for writing, without what a killed writer left, or empty where it is to be `fresh`.

    The study is in it, unless the results there are of another: these stay until new ones are known.
    """
    folder = RunFolder(out)
    folder.check_usable(fresh)
    with folder.locked():
        if fresh:
            folder.clear()
        folder.sweep()
        if not folder.is_finished:
            write_bytes(folder.path / STUDY, study.encode())
        yield folder


def replace_results(folder: RunFolder, study: str, record: RunRecord) -> None:
    """Put a study and its record in place of those that are there; tables, verdict and report are to follow.

    The verdict that was there stays in the history.
    """
    try:
        _write_history(folder.path, read_history(folder.path))
    except InputError as error:
        warnings.warn(f"the history of verdicts starts anew: {error}", stacklevel=2)
        (folder.path / HISTORY).unlink(missing_ok=True)
    folder.write_record(record)  # not finished from here on, whatever is cleared next
    folder.clear_results()
    write_bytes(folder.path / STUDY, study.encode())


def _write_history(run: Path, entries: Sequence[history.Entry]) -> None:
    if entries:
        write_json(run / HISTORY, [entry.model_dump() for entry in entries])


def utc_now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def make_record(prepared: Prepared, graph: Graph, outcome: Outcome, folder: RunFolder) -> RunRecord:
    """What run.json says of a study that was run."""
    study, before = prepared.study, folder.earlier_record()
    now = environment()
    earlier = [*before.earlier_environments, before.environment] if before else []
    settings = {name: own.model_dump(mode="json", exclude={"sources"}) for name, own in prepared.settings.items()}
    return RunRecord(
        study=study.name,
        seed=study.seed,
        created=before.created if before else utc_now(),
        environment=now,
        earlier_environments=[e for place, e in enumerate(earlier) if e != now and e not in earlier[:place]],
        settings={"batch": study.batch, "threads": THREADS},
        sources={
            name: source_record(bench, prepared.plan, prepared.seen[name], prepared.changes(name))
            for name, bench in prepared.sources.items()
        },
        criteria=[criterion.model_dump() for criterion in prepared.criteria],
        **node_records(graph, outcome),
        protocols={
            name: records.ProtocolRecord(
                settings=settings[name],
                sources={
                    source: records.SourcePart(
                        cases=[
                            records.AskedCase(case=p.case.hash, system=p.case.system, labels=dict(p.labels))
                            for p in prepared.plan.of(name, source)
                        ],
                        context=context.model_dump(mode="json"),
                        left_out=dict(prepared.left_out[name][source]),
                    )
                    for source, context in contexts.items()
                },
            )
            for name, contexts in prepared.contexts.items()
        },
        files={},
    )


def run_study(
    source: str | Path | dict[str, Any],
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Run:
    """Run a study file (or its content) into `out` (default: runs/<name of the study>); resumes by itself.

    `fresh` makes everything anew, also what the folder holds already; `accept_chance` tests models that are no better
    than chance all the same.
    """
    study, base = load_study(source)
    target = Path(out or Path("runs") / study.name).absolute()  # code of a model may change the working folder
    prepared = prepare(
        study, base=base, trust=trust, unpickle=unpickle, device=device, accept_chance=accept_chance, progress=progress
    )
    return execute(prepared, target, workers=workers, fresh=fresh, progress=progress)


def export_study(
    source: str | Path | dict[str, Any],
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: ProgressBar = terminal_progress,
) -> int:
    """Write the disturbed images of a study to a new folder, without opening its models; returns how many."""
    study, base = load_study(source)
    check_study_size(study, len(study.by_source()))
    chosen = study.protocols.chosen()
    for protocol, settings in chosen:
        protocol.check_settings(settings)
    benches = open_benches(study, base, progress)
    stimuli: dict[str, tuple[Showing, int, dict[str, None]]] = {}
    for protocol, settings in chosen:
        for name in settings.sources or benches:
            for showing in protocol.showings(settings, benches[name]):
                stimuli.setdefault(showing.stimulus.hash, (showing, benches[name].chunk, {}))[2][name] = None
    images = sum(len(showing.data) for showing, _, _ in stimuli.values())
    classes = {name: bench.data.class_names for name, bench in benches.items()}
    with progress(f"export {study.name}", images) as advance, writing(Path(folder)):
        shown = [(showing, chunk, [*sources]) for showing, chunk, sources in stimuli.values()]
        return export(shown, classes, Path(folder), batch=study.batch, progress=advance, workers=workers or 1)


def evaluate(
    model: Any,
    data: Any,
    *,
    suite: str = "standard",
    criteria: str | Path | list[Any] | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    size: str | tuple[int, int] | None = None,
    classes: str | Sequence[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    device: str = "auto",
    trust: bool = False,
    unpickle: bool = False,
    on_bad_image: str = "error",
    accept_chance: bool = False,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
    **model_settings: Any,
) -> Run:
    """Evaluate one classifier under a suite of shifts.

    `model` is a path, a torch module, a callable or a `Model`; `data` a path, a `Dataset` or `(images, labels)`.
    Settings of the model such as `range="0-255"` go on to its adapter. The run lands in `out` (default: runs/<model>),
    and one that was stopped is resumed; the finished run of another model or of other data there is refused, unless
    `fresh` makes everything anew. A model that is no better than chance is refused, unless `accept_chance` is set.
    """
    name = name or _name_of(model)
    data_spec = str(data) if isinstance(data, str | Path) else f"<{type(data).__name__}>"
    protocol, settings = find_suite(suite)
    study = parse_study(
        {
            "name": name,
            "seed": seed,
            "size": size,
            "data": {"test": data_spec, "classes": str(classes) if isinstance(classes, Path) else classes},
            "models": {name: model_spec(model, model_settings)},
            "protocols": {protocol.name: settings.model_dump()},
            "criteria": str(criteria) if isinstance(criteria, Path) else criteria,
        },
        "evaluate",
    )
    base = Path.cwd()  # code of a model may change it
    target = base / (out or Path("runs") / study.name)
    allowed: dict[str, Any] = {"trust": trust, "unpickle": unpickle, "device": device}
    build = model_builder(model, study.size, name=name, base=base, **allowed, **model_settings)
    given = Given({name: build()}, {name: build}, None if isinstance(data, str | Path) else data)
    allowed |= {"on_bad_image": on_bad_image, "accept_chance": accept_chance}
    prepared = prepare(study, base=base, given=given, progress=progress, **allowed)
    if not fresh:
        _refuse_another(prepared, RunFolder(target))
    return execute(prepared, target, workers=workers, fresh=fresh, progress=progress)


def model_spec(model: Any, settings: Mapping[str, Any]) -> Any:
    """A model as a study names it; one that lives in memory as `<its type>`."""
    if isinstance(model, dict):
        return {**model, **settings}
    if isinstance(model, str | Path):
        return {kind_of(str(model)): str(model), **settings}
    return f"<{type(model).__name__}>"


def _refuse_another(prepared: Prepared, folder: RunFolder) -> None:
    """Refuse to put a run in the place of a finished one of another model, of other data or of another seed."""
    folder.check_usable()
    if not folder.is_finished:
        return
    record = folder.record()
    models = {name: model.fingerprint for name, model in record.models.items()}
    bench = next(iter(prepared.sources.values()))
    what = ""
    if models != {name: bench.fingerprint(model) for name, model in bench.models.items()}:
        what = "another model"
    elif record.first.data.fingerprint != bench.data.fingerprint():
        what = "other data"
    elif record.seed != prepared.study.seed:
        what = f"another seed, {record.seed}"
    if what:
        raise InputError(
            f"{folder.path} holds the run of {what} ({', '.join(models)} on {record.first.data.name}): choose "
            "another folder with `out=`, or replace it with `fresh=True`"
        )


def check(
    model: Any,
    data: Any,
    *,
    sample: int = 512,
    name: str | None = None,
    size: str | tuple[int, int] | None = None,
    classes: str | Path | Sequence[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    trust: bool = False,
    unpickle: bool = False,
    on_bad_image: str = "error",
    **model_settings: Any,
) -> CheckReport:
    """Try a model on a sample of the data, before an evaluation: does it work as given, and if not, what would help?

    Takes the same models, data and keywords as `evaluate`. Print the report; `report.ok` is True where nothing wrong
    was found, and `report.findings[0].settings` are keywords that put it right.
    """
    check_number("sample", sample, 1, math.inf)
    wanted = parse_size(size)
    base = Path.cwd()  # code of a model may change it
    allowed = {"trust": trust, "unpickle": unpickle, "device": device}
    build = model_builder(model, wanted, name=name or _name_of(model), base=base, **allowed, **model_settings)
    fallback = open_given(build)[0].input_size
    dataset = open_dataset(
        data, base=base, classes=classes, size=wanted, fallback_size=fallback, on_bad_image=on_bad_image, seed=seed
    )
    return check_model(build, dataset, sample=sample, seed=seed)


def _name_of(model: Any) -> str:
    if isinstance(model, str | Path):
        return Path(str(model).partition(":")[0]).stem or "model"
    return str(getattr(model, "name", None) or getattr(model, "__name__", None) or type(model).__name__)
