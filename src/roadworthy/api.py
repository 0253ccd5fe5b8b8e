"""The public Python API: evaluate a model, run a study, open a run."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import roadworthy.uncertainty  # noqa: F401 (registers)
from roadworthy import report
from roadworthy.core.errors import InputError, ModelError, from_here
from roadworthy.core.hashing import digest_file
from roadworthy.core.protocols import Dataset, Model, leaves
from roadworthy.core.types import Stimulus
from roadworthy.core.validation import check_number, parse_size
from roadworthy.data import OpenedDataset, open_dataset
from roadworthy.engine import local
from roadworthy.engine.artifacts import build_artifacts, build_needs, find_artifact
from roadworthy.engine.folder import FIRST_SCHEMA, STUDY, RunFolder, write_bytes, write_json, writing
from roadworthy.engine.plan import Bench, Plan, check_plan_size, chunk_size, is_stored
from roadworthy.engine.progress import ProgressBar as ProgressBar
from roadworthy.engine.progress import no_progress as no_progress
from roadworthy.engine.progress import terminal_progress as terminal_progress
from roadworthy.engine.provenance import environment
from roadworthy.engine.readouts import read_case
from roadworthy.metrics import current_name, stored_name, value_range
from roadworthy.models import StoredPredictions, align, kind_of, load_model
from roadworthy.models.check import CheckReport, Rehearsal, chance_error, check_model, open_given, rehearse
from roadworthy.protocols import Protocol, classification, find_protocol, protocol_of
from roadworthy.protocols.analysis import analyse
from roadworthy.protocols.base import Evidence, KnownCase, StoredCase
from roadworthy.protocols.comparison import ALPHA, MARGIN, check_question, choose_pairs, compare, load_systems
from roadworthy.protocols.export import export
from roadworthy.protocols.pages import pages_of
from roadworthy.study import OD_TEST, Study, load_study, parse_study, whole_paths
from roadworthy.verdict import (
    Criterion,
    Measure,
    Measurement,
    Verdict,
    check_threshold,
    failed_parts,
    judge,
    load_criteria,
    threshold_remark,
)
from roadworthy.verdict.history import (
    HISTORY,
    Entry,
    Made,
    history_problems,
    make_entry,
    other_criteria,
    read_history,
    with_entry,
)
from roadworthy.verdict.judge import never_pass


@dataclass(frozen=True)
class Prepared:
    """A study whose data and models are open and checked, and its plan. Nothing has been written yet."""

    study: Study
    data: OpenedDataset
    models: Mapping[str, Model]
    plan: Plan
    criteria: Sequence[Criterion]
    base: Path = Path()
    rehearsals: Mapping[str, Rehearsal] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def remarks(self) -> dict[str, str]:
        """What must be said of the thresholds of criteria, by their id."""
        return _remarks(self.criteria, len(self.data.class_names))


class Run:
    """A finished run.

    `run.tables["classification"]` is a data frame; `run.verdict("criteria.yaml")` judges; `run.report()` writes and
    returns the report; `run.verify()` compares everything with its hashes and recomputes the tables.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder.existing(path)

    def __repr__(self) -> str:
        record = self.record
        images = record["data"].get("images")
        facts = [
            f"models {', '.join(record['models'])}" if record.get("models") else "no models",
            *([f"{images:,} images"] if images else []),
            self._status(),
            f"{len(self.tables)} tables",
        ]
        return f"<{type(self).__name__} {record.get('study')} in {from_here(self.path)}: {'; '.join(facts)}>"

    def __fspath__(self) -> str:
        """The run's folder, so that a run can be given wherever its path can."""
        return str(self.path)

    def _status(self) -> str:
        """The stored verdict in two words, or that there is none yet."""
        if "finished" not in self.record:
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
    def record(self) -> dict[str, Any]:
        """Provenance: run.json."""
        return self.folder.record()

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """Every table by name, read when asked for."""
        return _Tables(self.folder)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The cases that failed, each with its cause."""
        return [case for case in self.record["cases"] if case["status"] == "failed"]

    def verdict(self, criteria: str | Path | list[Any] | None = None) -> Verdict:
        """Judge the run against criteria (default: those of its own verdict). Writes nothing."""
        self.folder.check_finished()
        chosen = self._criteria(criteria)
        self.check_criteria(chosen)
        return self.judge(chosen)

    def _criteria(self, criteria: str | Path | list[Any] | None) -> list[Criterion]:
        return load_criteria(self.record["criteria"] or None if criteria is None else criteria)

    def check_criteria(self, criteria: Sequence[Criterion]) -> None:
        """Refuse criteria that speak of what the run does not hold, or whose threshold cannot be met or missed."""
        _check_criteria(criteria, stored_cases(self.folder), len(self.record["data"]["class_names"]))

    def judge(self, criteria: Sequence[Criterion]) -> Verdict:
        """Judge the run by criteria that were checked."""
        return _judge(criteria, load_evidence(self.folder), self.record)

    @property
    def has_other_criteria(self) -> bool:
        """Whether its own verdict is by other criteria than those that the study was run with."""
        return other_criteria(read_history(self.path))

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

    def _note(self, verdict: Verdict, made: Made) -> None:
        """One more entry of the history; only for who holds the lock, and before verdict.json is written."""
        _write_history(self.path, self._with_entry(verdict, made))
        self.folder.update_record([HISTORY])

    def _check_history(self) -> None:
        """Refuse to add to a history that was changed: the entry would bless it."""
        recorded = self.record["files"].get(HISTORY)
        if recorded and not ((self.path / HISTORY).is_file() and digest_file(self.path / HISTORY) == recorded):
            raise InputError(f"{self.path / HISTORY} was changed or is missing: check the run with roadworthy verify")

    def _with_entry(self, verdict: Verdict, made: Made) -> list[Entry]:
        entry = make_entry(verdict.to_json(), verdict.criteria, made, utc_now())
        return with_entry(read_history(self.path), entry)

    def conclude(self, record: dict[str, Any], verdict: Verdict) -> None:
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
        """Files that are missing, changed or added, by their hashes in run.json; and whether the run is finished."""
        recorded = self.record["files"]
        found = {str(path.relative_to(self.path)): path for path in self.folder.files()}
        problems = [f"{name} is missing" for name in recorded if name not in found]
        problems += [f"{name} is not part of the run" for name in found if name not in recorded]
        problems += [
            f"{n} was changed" for n, path in found.items() if n in recorded and digest_file(path) != recorded[n]
        ]
        if "finished" not in self.record:
            problems.append("the run is not finished: run it again to resume")
        return problems

    def verify(self) -> list[str]:
        """What is wrong with the run: files missing, changed or added, tables that do not follow from the readouts."""
        problems = self.file_problems()
        if problems:
            return problems
        stored_names = self.folder.table_names()
        for name, table in _tables(load_evidence(self.folder)).items():
            if name in stored_names and not follows(table, self.folder.table(name)):
                problems.append(f"table {name} does not follow from the readouts")
        return problems + self.verdict_problems("readouts")

    def verdict_problems(self, source: str) -> list[str]:
        """What is wrong with the verdict: it does not follow from what is stored, or its history does not fit it."""
        problems, record = history_problems(self.path, self.record["criteria"]), self.record
        stored = json.loads((self.path / "verdict.json").read_text())
        status = stored["status"] if "failed" in stored else never_pass(stored["status"], failed_parts(record))
        before = [status, *((criterion["id"], criterion["status"]) for criterion in stored["criteria"])]
        judged = self.judge(self._criteria(None))
        if before != [judged.status, *((finding.criterion.id, finding.status) for finding in judged.findings)]:
            problems.append(f"verdict.json does not follow from the {source} and the criteria")
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


def stored_cases(folder: RunFolder) -> dict[str, list[StoredCase]]:
    """The cases of a run by protocol, their readouts read when asked for."""
    cases: dict[str, list[StoredCase]] = {}
    record = folder.record()
    find = partial(find_artifact, folder, failures=record.get("artifact_failures", {}))
    is_first = record["schema"] == FIRST_SCHEMA
    for case in record["cases"]:
        cases.setdefault(case["protocol"], []).append(
            StoredCase(
                system=case["system"],
                stimulus=Stimulus(**case["stimulus"]),
                tags=case.get("tags", {}),
                failure=case["reason"] if case["status"] == "failed" else "",
                load=partial(read_case, folder.case(case["key"], case["protocol"] if is_first else None)),
                artifact=find,
            )
        )
    return cases


def load_evidence(folder: RunFolder, workers: int = 1, seed: int | None = None) -> dict[str, Evidence]:
    """What the stored readouts of a run say, by protocol; objects are resampled by the run's own seed or another."""
    record = folder.record()
    names, seed = record["data"]["class_names"], record["seed"] if seed is None else seed
    return {
        name: find_protocol(name).evidence(cases, names, seed=seed, workers=workers)
        for name, cases in stored_cases(folder).items()
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
    folders = [_comparable(path) for path in runs]
    cases = [stored_cases(folder) for folder in folders]
    names = [list(dict.fromkeys(case.system for stored in own.values() for case in stored)) for own in cases]
    pairs = load_systems(
        choose_pairs([os.fspath(path) for path in runs], names, models),
        [folder.path.name for folder in folders],
        cases,
        [folder.record()["data"]["class_names"] for folder in folders],
        metrics,
        alpha,
        workers or os.cpu_count() or 1,
    )
    return compare(pairs, metrics, alpha, margin)


def _comparable(path: str | os.PathLike[str]) -> RunFolder:
    folder = RunFolder.existing(Path(path))
    if folder.record().get("kind") == OD_TEST:
        raise InputError(
            f"{folder.path} is an OD-test, which holds no cases to compare: its tables compare its monitors"
        )
    return folder


def _check_criteria(criteria: Sequence[Criterion], cases: Mapping[str, Sequence[KnownCase]], num_classes: int) -> None:
    """Refuse criteria that match none of the cases (by protocol) or whose threshold is outside the metric's range."""
    for criterion in criteria:
        protocol = protocol_of(criterion, cases)
        protocol.check(cases[protocol.name], criterion)
        check_threshold(criterion, value_range(criterion.metric, num_classes))


def _judge(criteria: Sequence[Criterion], evidence: Mapping[str, Evidence], record: Mapping[str, Any]) -> Verdict:
    """The verdict from the evidence of a run and from what failed in it by its record."""
    remarks = _remarks(criteria, len(record["data"]["class_names"]))
    return judge(criteria, _measure(evidence), remarks=remarks, failed=failed_parts(record))


def _remarks(criteria: Sequence[Criterion], num_classes: int) -> dict[str, str]:
    found = {c.id: threshold_remark(c, value_range(c.metric, num_classes)) for c in criteria}
    return {name: remark for name, remark in found.items() if remark}


def _measure(evidence: Mapping[str, Evidence]) -> Measure:
    """What matches a criterion, by the evidence of the protocol it speaks of."""

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        return evidence[protocol_of(criterion, evidence).name].measure(criterion, confidence)

    return measure


def prepare(
    study: Study,
    *,
    base: Path = Path(),
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    on_bad_image: str = "error",
    models: Mapping[str, Model] | None = None,
    builders: Mapping[str, Callable[..., Model]] | None = None,
    data: OpenedDataset | None = None,
    accept_chance: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Prepared:
    """Open and check everything a study names and make its plan. Writes nothing, so a mistake leaves no trace.

    `models` are those that are open already, `builders` make them anew with changed settings. A model that is no better
    than chance on undisturbed images is an error, unless `accept_chance` is set.
    """
    base = base.absolute()
    criteria = load_criteria(study.criteria, base)
    chosen = study.protocols.chosen()
    _check_study_size(study, len(study.models))
    for protocol, settings in chosen:
        protocol.check_settings(settings)
    opened, builders = dict(models or {}), dict(builders or {})
    for name, spec in study.models.items():
        if name not in opened:
            builders[name] = model_builder(
                spec, study.size, name=name, trust=trust, unpickle=unpickle, device=device, base=base
            )
            opened[name] = builders[name]()
    if data is None:
        inputs = [model.input_size for model in opened.values() if model.input_size]
        data = open_test_data(study, base, max(inputs, default=None), on_bad_image)
    if not len(data):
        raise InputError(f"data set {data.name} holds no image")
    with progress("reading images", len(data)) as advance:
        data.verify_all(advance)
    wanted = frozenset[str]().union(
        *(model.wants for model in opened.values()), *(protocol.wants(settings) for protocol, settings in chosen)
    )
    given = {role: open_learning_data(study, role, base, data, on_bad_image) for role in sorted(wanted)}
    opened = {name: model.given(given) for name, model in opened.items()}
    for name, model in opened.items():
        if "probabilities" not in model.columns:
            continue
        if model.num_classes != len(data.class_names):
            raise InputError(
                f"model {name} answers {model.num_classes} classes, but data set {data.name} has "
                f"{len(data.class_names)}: fix the order and number of classes with `classes=`"
            )
        opened[name] = align(model, data.class_names)
    chunk = chunk_size(data, study.batch)
    foreign = open_foreign(study, base, data)
    bench = Bench(data, opened, study.seed, study.batch, chunk, foreign, given.get("train"))
    left_out = {protocol.name: _left_out(protocol, opened) for protocol, _ in chosen}
    cases = [
        case
        for protocol, settings in chosen
        for case in protocol.plan(settings, bench.without(left_out[protocol.name]))
    ]
    plan = Plan(tuple(cases), chunk, study.batch)
    prepared = Prepared(study, data, opened, plan, criteria, base, left_out=left_out)
    _check_asked(prepared)
    return replace(prepared, rehearsals=_rehearse_all(prepared, builders, accept_chance))


def _left_out(protocol: Protocol, models: Mapping[str, Model]) -> dict[str, str]:
    """The models that do not answer in the columns a protocol needs, with the reason; all of them is an error."""
    reasons = {}
    for name, model in models.items():
        lacking = sorted(protocol.columns - set(model.columns))
        if lacking:
            reasons[name] = f"model {name} answers no {' and no '.join(lacking)}"
    if len(reasons) == len(models):
        raise InputError(f"protocol {protocol.name} has no model to ask: {'; '.join(reasons.values())}")
    return reasons


def rehearsed(
    model: Model, data: Dataset, seed: int, batch: int, build: Callable[..., Model] | None, accept_chance: bool
) -> Rehearsal:
    """Ask a model about a sample of undisturbed images; refuse one that is no better than chance."""
    clean = Stimulus(data.fingerprint(), seed=seed)
    try:
        rehearsal = rehearse(model, data, stimulus=clean.key, batch=batch)
    except ModelError as error:
        raise ModelError(f"{error} (on undisturbed images)") from error
    if rehearsal.changes_by:
        change = f"its probabilities change by up to {rehearsal.changes_by:.2g}"
        warnings.warn(
            f"model {model.name} answers the same images differently when asked again: {change}", stacklevel=2
        )
    if rehearsal.result.is_chance and not accept_chance:
        raise InputError(chance_error(model, data, rehearsal.result, build))
    return rehearsal


def model_builder(spec: Any, size: tuple[int, int] | None, **settings: Any) -> Callable[..., Model]:
    """What makes a model, as given or with some of its settings changed."""

    def build(**changed: Any) -> Model:
        return load_sized(spec, size, **{**settings, **changed})

    return build


def _check_study_size(study: Study, models: int) -> None:
    """Refuse a study of more cases than can be planned, before anything is opened."""
    foreign = len(study.outliers) or 1
    stimuli = sum(protocol.count_stimuli(settings, foreign) for protocol, settings in study.protocols.chosen())
    check_plan_size(stimuli * models)


def load_sized(spec: Any, size: tuple[int, int] | None, **settings: Any) -> Model:
    """Load a model; one that cannot do without being told its input size is told the study's."""
    try:
        return load_model(spec, **settings)
    except InputError as error:
        if size is None or "size" in settings:
            raise
        try:
            return load_model(spec, size=size, **settings)
        except InputError:
            raise error from None


def open_test_data(
    study: Study, base: Path, fallback_size: tuple[int, int] | None, on_bad_image: str = "error"
) -> OpenedDataset:
    """The test data of a study, at the study's size, else the images' own where all are equal, else the fallback."""
    return open_dataset(
        study.data.test,
        classes=study.data.classes,
        size=study.size,
        fallback_size=fallback_size,
        base=base,
        on_bad_image=on_bad_image,
        seed=study.seed,
    )


LEARNING = {
    "train": "a network is trained by the study: name its training data under data: train",
    "validation": "a temperature is fitted by the study: name held-out images under data: validation",
}
"""What a study must name for models that learn from data, by role, as the sentence that asks for it."""


def open_learning_data(
    study: Study, role: str, base: Path, data: OpenedDataset, on_bad_image: str = "error"
) -> OpenedDataset:
    """The training or validation data of a study, at the size of its test data and with the same classes."""
    source = getattr(study.data, role)
    if source is None:
        raise InputError(LEARNING[role])
    learned = open_dataset(
        source,
        classes=study.data.classes,
        size=data.size,
        base=base,
        on_bad_image=on_bad_image,
        seed=study.seed,
    )
    what = "training" if role == "train" else role
    if learned.class_names != data.class_names:
        raise InputError(f"{what} data {learned.name} has other classes than test data {data.name}")
    if learned.fingerprint() == data.fingerprint():
        raise InputError(f"{what} data {learned.name} and test data {data.name} are the same images")
    return learned


def open_foreign(study: Study, base: Path, data: OpenedDataset) -> dict[str, OpenedDataset]:
    """The foreign sets of a study at the size of the test data, where a protocol wants them.

    The built-in scenery stands in where the study names none.
    """
    if not any(protocol.wants_foreign for protocol, _ in study.protocols.chosen()):
        return {}
    sources = study.outliers or {"scenery": {"builtin": "scenery", "n": len(data)}}
    return {
        name: open_dataset(spec, size=data.size, base=base, seed=study.seed, name=name)
        for name, spec in sources.items()
    }


def _check_asked(prepared: Prepared) -> None:
    """Refuse criteria that match no case of the plan, or whose threshold the metric cannot have."""
    known: dict[str, list[KnownCase]] = {}
    for planned in prepared.plan.cases:
        case = KnownCase(planned.case.system, planned.case.stimulus, planned.tags)
        known.setdefault(planned.protocol, []).append(case)
    _check_criteria(prepared.criteria, known, len(prepared.data.class_names))


def _rehearse_all(
    prepared: Prepared, builders: Mapping[str, Callable[..., Model]], accept_chance: bool
) -> dict[str, Rehearsal]:
    """Find what would spoil every figure before anything is written: a rehearsal of each model that is ready.

    Stored answers must be complete, and are looked at where they hold those to undisturbed test data.
    """
    data, seed, rehearsals = prepared.data, prepared.study.seed, {}
    for name, model in prepared.models.items():
        if not all(part.loaded for part in model.parts()) or "probabilities" not in model.columns:
            continue
        if is_stored(model):
            asked = [planned for planned in prepared.plan.cases if not planned.refused]
            shown = [planned.showing for planned in asked if planned.case.system == name]
            for own in leaves(model):
                if isinstance(own, StoredPredictions):
                    own.check_complete({showing.stimulus.key: showing.data.ids for showing in shown})
            if Stimulus(data.fingerprint(), seed=seed).key not in {showing.stimulus.key for showing in shown}:
                continue
        rehearsals[name] = rehearsed(model, data, seed, prepared.study.batch, builders.get(name), accept_chance)
    return rehearsals


def execute(
    prepared: Prepared,
    out: str | Path,
    *,
    workers: int | None = None,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Run:
    """Run a prepared study into a folder; one that holds part of it already is resumed, unless it is to be `fresh`."""
    workers = workers or os.cpu_count() or 1
    stored = _stored_study(prepared).to_yaml()
    with opened_folder(out, stored, fresh) as folder:
        study, plan = prepared.study, prepared.plan
        artifacts, broken = build_artifacts(plan, folder, progress)
        failed = {planned.case.hash: planned.refused for planned in plan.cases if planned.refused}
        failed |= {
            planned.case.hash: broken[part.recipe.hash]
            for planned in (plan.cases if broken else ())
            for _, part in planned.parts()
            if part.recipe.hash in broken
        }
        plan = Plan(tuple(each for each in plan.cases if each.case.hash not in failed), plan.chunk, plan.batch)
        lost = broken | build_needs(plan, folder, progress)
        with progress(f"testing {study.name}", plan.image_cases()) as advance:
            outcome = local.execute(plan, folder, workers=workers, progress=advance)
        outcome.failures.update(failed)
        record = _record(prepared, outcome, folder) | ({"artifacts": artifacts} if artifacts else {})
        record |= {"artifact_failures": lost} if lost else {}
        timing = local.timing_table(folder, prepared.plan, outcome)
        if len(outcome.failures) == len(prepared.plan.cases):
            if not folder.is_finished:
                folder.write_record(record)
            raise ModelError(f"every case failed; the first: {next(iter(outcome.failures.values()))}")
        replace_results(folder, stored, record)
        evidence, media = load_evidence(folder, workers), folder.path / "media"
        drawn = {name: [p for p in plan.of(name) if p.case.hash not in outcome.not_shown] for name in evidence}
        with progress("computing tables", 0), ThreadPoolExecutor(1) as painter:
            pictures = {
                name: painter.submit(found.pictures, drawn[name], media)
                for name, found in evidence.items()
                if drawn[name]
            }
            tables = _tables(evidence)
        for name, table in (tables | {"timing_cases": timing}).items():
            folder.write_table(name, table)
        for painted in pictures.values():
            for name, table in painted.result().items():
                folder.write_table(name, table)
        run = Run(folder.path)
        run.conclude(record, _judge(prepared.criteria, evidence, record))
    return run


@contextmanager
def opened_folder(out: str | Path, study: str, fresh: bool = False) -> Iterator[RunFolder]:
    """The folder of a run, held for writing, without what a killed writer left, or empty where it is to be `fresh`.

    The study is in it, unless the results there are of another: these stay until new ones are known.
    """
    folder = RunFolder(out)
    folder.check_usable(fresh)
    with folder.locked():
        folder.sweep()
        if fresh:
            folder.clear()
        if not folder.is_finished:
            write_bytes(folder.path / STUDY, study.encode())
        yield folder


def replace_results(folder: RunFolder, study: str, record: dict[str, Any]) -> None:
    """Put a study and its record in place of those that are there; tables, verdict and report are to follow.

    The verdict that was there stays in the history.
    """
    try:
        _write_history(folder.path, read_history(folder.path))
    except InputError as error:
        warnings.warn(f"the history of verdicts starts anew: {error}", stacklevel=2)
        (folder.path / HISTORY).unlink(missing_ok=True)
    folder.clear_results()
    write_bytes(folder.path / STUDY, study.encode())
    folder.write_record(record)


def _write_history(run: Path, history: Sequence[Entry]) -> None:
    if history:
        write_json(run / HISTORY, [entry.model_dump() for entry in history])


def _stored_study(prepared: Prepared) -> Study:
    """The study with whole paths and its criteria inside, so that the copy in the run can be run by itself."""
    study, base = prepared.study, prepared.base.resolve()
    data = study.data.model_copy(
        update={
            "test": whole_paths(study.data.test, base),
            "train": whole_paths(study.data.train, base),
            "validation": whole_paths(study.data.validation, base),
            "classes": whole_paths(study.data.classes, base),
        }
    )
    models, outliers = (
        {name: whole_paths(spec, base) for name, spec in named.items()} for named in (study.models, study.outliers)
    )
    criteria = [criterion.model_dump(exclude_none=True) for criterion in prepared.criteria] or None
    return study.model_copy(update={"data": data, "models": models, "outliers": outliers, "criteria": criteria})


def utc_now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _record(prepared: Prepared, outcome: local.Outcome, folder: RunFolder) -> dict[str, Any]:
    data, study = prepared.data, prepared.study
    before = folder.earlier_record()
    earlier = [e for e in [*before.get("earlier_environments", []), before.get("environment")] if e]
    now = environment()
    return {
        "study": study.name,
        "seed": study.seed,
        "created": before.get("created", utc_now()),
        "environment": now,
        "earlier_environments": [e for place, e in enumerate(earlier) if e != now and e not in earlier[:place]],
        "settings": {"batch": prepared.plan.batch, "chunk": prepared.plan.chunk, "size": list(data.size)},
        "data": {
            "name": data.name,
            "fingerprint": data.fingerprint(),
            "images": len(data),
            "groups": len(set(data.groups)),
            "class_names": list(data.class_names),
            "size": list(data.size),
            "bad_images": [list(bad) for bad in data.bad_images],
            "notes": list(data.notes),
        },
        "models": {
            name: {
                "fingerprint": model.fingerprint(),
                "capabilities": sorted(model.capabilities),
                **_unsteadiness(prepared.rehearsals.get(name)),
            }
            for name, model in prepared.models.items()
        },
        "criteria": [criterion.model_dump() for criterion in prepared.criteria],
        **({"left_out": left_out} if (left_out := {k: dict(v) for k, v in prepared.left_out.items() if v}) else {}),
        "cases": [
            {
                "protocol": planned.protocol,
                "key": planned.case.key,
                "hash": planned.case.hash,
                "system": planned.case.system,
                "stimulus": planned.case.stimulus.config(),
                "status": "failed" if planned.case.hash in outcome.failures else "done",
                "reason": outcome.failures.get(planned.case.hash, ""),
                **({"tags": dict(planned.tags)} if planned.tags else {}),
            }
            for planned in prepared.plan.cases
        ],
    }


def _unsteadiness(rehearsal: Rehearsal | None) -> dict[str, float]:
    return {"changes_by": rehearsal.changes_by} if rehearsal is not None and rehearsal.changes_by else {}


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
        study,
        base=base,
        trust=trust,
        unpickle=unpickle,
        device=device,
        accept_chance=accept_chance,
        progress=progress,
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
    _check_study_size(study, 1)
    data = open_test_data(study, base, None)
    chunk = chunk_size(data, study.batch)
    chosen = study.protocols.chosen()
    for protocol, settings in chosen:
        protocol.check_settings(settings)
    bench = Bench(data, {}, study.seed, study.batch, chunk, open_foreign(study, base, data))
    stimuli = {
        showing.stimulus.hash: showing
        for protocol, settings in chosen
        for showing in protocol.showings(settings, bench)
    }
    planned = list(stimuli.values())
    images = sum(len(showing.data) for showing in planned)
    with progress(f"export {study.name}", images) as advance, writing(Path(folder)):
        return export(
            planned,
            data.class_names,
            Path(folder),
            batch=study.batch,
            chunk=chunk,
            progress=advance,
            workers=workers or 1,
        )


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
    model_spec: Any = f"<{type(model).__name__}>"
    if isinstance(model, str | Path):
        model_spec = {kind_of(str(model)): str(model), **model_settings}
    data_spec = str(data) if isinstance(data, str | Path) else f"<{type(data).__name__}>"
    study = parse_study(
        {
            "name": name,
            "seed": seed,
            "size": size,
            "data": {"test": data_spec, "classes": str(classes) if isinstance(classes, Path) else classes},
            "models": {name: model_spec},
            "protocols": {"classification": classification.suite_settings(suite).model_dump()},
            "criteria": str(criteria) if isinstance(criteria, Path) else criteria,
        },
        "evaluate",
    )
    base = Path.cwd()  # code of a model may change it
    target = base / (out or Path("runs") / study.name)
    allowed = {"trust": trust, "unpickle": unpickle, "device": device}
    build = model_builder(model, study.size, name=name, base=base, **allowed, **model_settings)
    opened = build()
    dataset = None
    if not isinstance(data, str | Path):
        dataset = open_dataset(
            data,
            classes=classes,
            size=study.size,
            fallback_size=opened.input_size,
            base=base,
            on_bad_image=on_bad_image,
            seed=seed,
        )
    prepared = prepare(
        study,
        base=base,
        models={name: opened},
        builders={name: build},
        data=dataset,
        on_bad_image=on_bad_image,
        accept_chance=accept_chance,
        progress=progress,
    )
    if not fresh:
        _refuse_another(prepared, RunFolder(target))
    return execute(prepared, target, workers=workers, fresh=fresh, progress=progress)


def _refuse_another(prepared: Prepared, folder: RunFolder) -> None:
    """Refuse to put a run in the place of a finished one of another model, of other data or of another seed."""
    folder.check_usable()
    if not folder.is_finished:
        return
    record = folder.record()
    models = {name: model["fingerprint"] for name, model in record.get("models", {}).items()}
    own = {name: model.fingerprint() for name, model in prepared.models.items()}
    what = ""
    if models != own:
        what = "another model"
    elif record["data"].get("fingerprint") != prepared.data.fingerprint():
        what = "other data"
    elif record["seed"] != prepared.study.seed:
        what = f"another seed, {record['seed']}"
    if what:
        raise InputError(
            f"{folder.path} holds the run of {what} ({', '.join(models)} on {record['data'].get('name')}): choose "
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
    opened, _ = open_given(build)
    dataset = open_dataset(
        data,
        base=base,
        classes=classes,
        size=wanted,
        fallback_size=opened.input_size,
        on_bad_image=on_bad_image,
        seed=seed,
    )
    return check_model(build, dataset, sample=sample, seed=seed)


def _name_of(model: Any) -> str:
    if isinstance(model, str | Path):
        return Path(str(model).partition(":")[0]).stem or "model"
    return str(getattr(model, "name", None) or getattr(model, "__name__", None) or type(model).__name__)
