"""The public Python API: evaluate a model, run a study, open a run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import roadworthy.uncertainty  # noqa: F401 (registers)
from roadworthy.core.errors import InputError, ModelError, RoadworthyError
from roadworthy.core.protocols import Buildable, Model, leaves
from roadworthy.core.types import Stimulus
from roadworthy.data import OpenedDataset, open_dataset
from roadworthy.engine import local
from roadworthy.engine.artifacts import ensure_artifact, find_artifact, read_artifact
from roadworthy.engine.folder import STUDY, RunFolder, write_bytes, write_json, writing
from roadworthy.engine.plan import Bench, Plan, chunk_size, is_stored
from roadworthy.engine.provenance import environment
from roadworthy.engine.readouts import read_case
from roadworthy.models import StoredPredictions, align, kind_of, load_model
from roadworthy.protocols import classification, find_protocol, protocol_of
from roadworthy.protocols.analysis import analyse
from roadworthy.protocols.base import Evidence, KnownCase, StoredCase
from roadworthy.protocols.comparison import ALPHA, MARGIN, System, compare
from roadworthy.protocols.export import export
from roadworthy.study import OD_TEST, Study, load_study, parse_study, whole_paths
from roadworthy.verdict import Criterion, Measure, Measurement, Verdict, judge, load_criteria

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a title and a total; what it yields is told about each advance."""


@contextmanager
def no_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar that shows nothing."""
    yield lambda amount: None


@contextmanager
def terminal_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with rate and time left on standard error; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=False),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, rate="")

        def advance(amount: int) -> None:
            bar.advance(task, amount)
            speed = bar.tasks[task].speed
            bar.update(task, rate=f"{speed:,.0f} images/s" if speed else "")

        yield advance


@dataclass(frozen=True)
class Prepared:
    """A study whose data and models are open and checked, and its plan. Nothing has been written yet."""

    study: Study
    data: OpenedDataset
    models: Mapping[str, Model]
    plan: Plan
    criteria: Sequence[Criterion]
    base: Path = Path()


class Run:
    """A finished run.

    `run.tables["classification"]` is a data frame; `run.verdict("criteria.yaml")` judges; `run.report()` writes and
    returns the report; `run.verify()` compares everything with its hashes and recomputes the tables.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder.existing(path)

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
        """Judge the run against criteria (default: those of its study). Writes nothing."""
        return judge(self._criteria(criteria), _measure(load_evidence(self.folder)))

    def _criteria(self, criteria: str | Path | list[Any] | None) -> list[Criterion]:
        return load_criteria(self.record["criteria"] or None if criteria is None else criteria)

    def save_verdict(self, verdict: Verdict) -> None:
        """Make a verdict and its criteria the run's own: verdict.json, run.json and the report show them."""
        criteria = [finding.criterion.model_dump() for finding in verdict.findings]
        with self.folder.locked():
            write_json(self.path / "verdict.json", verdict.to_json())
            self._render()
            self.folder.update_record(["verdict.json", "report.html"], criteria=criteria)

    def conclude(self, record: dict[str, Any], verdict: Verdict) -> None:
        """End a run whose tables are written: verdict, report and the finished record; only for who holds the lock."""
        write_json(self.path / "verdict.json", verdict.to_json())
        self.folder.write_record(record)
        self._render()
        self.folder.update_record(["report.html"], finished=utc_now())

    def report(self) -> Path:
        """Write report.html anew from the stored tables and pictures."""
        with self.folder.locked():
            path = self._render()
            self.folder.update_record(["report.html"])
        return path

    def _render(self) -> Path:
        from roadworthy.report import render

        path = self.path / "report.html"
        write_bytes(path, render(self.path).encode())
        return path

    def file_problems(self) -> list[str]:
        """Files that are missing, changed or added, by their hashes in run.json; and whether the run is finished."""
        from roadworthy.core.hashing import digest_file

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
            if name in stored_names and not same_table(table, self.folder.table(name)):
                problems.append(f"table {name} does not follow from the readouts")
        stored = json.loads((self.path / "verdict.json").read_text())
        if stored["status"] != self.verdict().status:
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
    for case in record["cases"]:
        cases.setdefault(case["protocol"], []).append(
            StoredCase(
                system=case["system"],
                stimulus=Stimulus(**case["stimulus"]),
                tags=case.get("tags", {}),
                failure=case["reason"] if case["status"] == "failed" else "",
                load=partial(read_case, folder.case(case["protocol"], case["key"])),
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
    runs: Sequence[str | Path],
    *,
    metrics: Sequence[str] | None = None,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    workers: int | None = None,
) -> pd.DataFrame:
    """Compare models on the same images, condition by condition (see `protocols.comparison.compare`).

    The first run is the baseline: models of the others are compared with its model of the same name, or with its only
    one. A single run compares its later models with its first.
    """
    systems = [_systems(RunFolder.existing(path), workers or os.cpu_count() or 1) for path in runs]
    if not systems:
        raise InputError("name at least one run to compare")
    first = systems[0]
    pairs = [(first[0], other) for other in first[1:]] if len(systems) == 1 else []
    for others in systems[1:]:
        known = {system.model: system for system in first}
        alone = first[0] if len(first) == 1 and len(others) == 1 else None
        for system in others:
            baseline = known.get(system.model) or alone
            if baseline is None:
                raise InputError(f"{system.label} has no counterpart in {runs[0]}: its models are {sorted(known)}")
            pairs.append((baseline, system))
    if not pairs:
        raise InputError(f"{runs[0]} holds one model only: name a second run to compare it with")
    return compare(pairs, metrics, alpha, margin)


def _systems(folder: RunFolder, workers: int) -> list[System]:
    if folder.record().get("kind") == OD_TEST:
        raise InputError(
            f"{folder.path} is an OD-test, which holds no cases to compare: its tables compare its monitors"
        )
    cases, evidence = stored_cases(folder), load_evidence(folder, workers, seed=0)
    models = dict.fromkeys(case.system for stored in cases.values() for case in stored)
    return [System(f"{folder.path.name}/{model}", model, evidence, cases) for model in models]


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
    device: str = "auto",
    on_bad_image: str = "error",
    models: Mapping[str, Model] | None = None,
    data: OpenedDataset | None = None,
    progress: ProgressBar = terminal_progress,
) -> Prepared:
    """Open and check everything a study names and make its plan. Writes nothing, so a mistake leaves no trace."""
    base = base.absolute()
    criteria = load_criteria(study.criteria, base)
    chosen = study.protocols.chosen()
    for protocol, settings in chosen:
        protocol.check_settings(settings)
    opened = dict(models or {})
    for name, spec in study.models.items():
        if name not in opened:
            opened[name] = load_sized(spec, study.size, name=name, trust=trust, device=device, base=base)
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
        if model.num_classes != len(data.class_names):
            raise InputError(
                f"model {name} answers {model.num_classes} classes, but data set {data.name} has "
                f"{len(data.class_names)}: fix the order and number of classes with --classes (or data.classes)"
            )
        opened[name] = align(model, data.class_names)
    chunk = chunk_size(data, study.batch)
    foreign = open_foreign(study, base, data)
    bench = Bench(data, opened, study.seed, study.batch, chunk, foreign, given.get("train"))
    cases = [case for protocol, settings in chosen for case in protocol.plan(settings, bench)]
    prepared = Prepared(study, data, opened, Plan(tuple(cases), chunk, study.batch), criteria, base)
    _preflight(prepared)
    return prepared


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
    sources = study.data.ood or {"scenery": {"builtin": "scenery", "n": len(data)}}
    return {
        name: open_dataset(spec, size=data.size, base=base, seed=study.seed, name=name)
        for name, spec in sources.items()
    }


def _preflight(prepared: Prepared) -> None:
    """Find what would fail every case before anything is written: one batch per model, complete stored answers."""
    known: dict[str, list[KnownCase]] = {}
    for planned in prepared.plan.cases:
        case = KnownCase(planned.case.system, planned.case.stimulus, planned.tags)
        known.setdefault(planned.case.protocol, []).append(case)
    for criterion in prepared.criteria:
        protocol = protocol_of(criterion, known)
        protocol.check(known[protocol.name], criterion)
    clean = Stimulus(prepared.data.fingerprint(), seed=prepared.study.seed)
    sample = prepared.data.batch(slice(0, min(prepared.plan.batch, len(prepared.data))))
    for name, model in prepared.models.items():
        if not all(part.loaded for part in model.parts()):
            continue
        for own in leaves(model):
            if isinstance(own, StoredPredictions):
                asked = [planned for planned in prepared.plan.cases if not planned.refused]
                shown = [planned.showing for planned in asked if planned.case.system == name]
                own.check_complete({showing.stimulus.key: showing.data.ids for showing in shown})
        if not is_stored(model):
            try:
                model.answer(sample.with_images(sample.images, stimulus=clean.key), prepared.plan.batch)
            except ModelError as error:
                raise ModelError(f"{error} (on the first {len(sample)} undisturbed images)") from error


def execute(
    prepared: Prepared,
    out: str | Path,
    *,
    workers: int | None = None,
    progress: ProgressBar = terminal_progress,
) -> Run:
    """Run a prepared study into a folder; one that holds part of it already is resumed."""
    workers = workers or os.cpu_count() or 1
    stored = _stored_study(prepared).to_yaml()
    with opened_folder(out, stored) as folder:
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
        with progress(study.name, plan.image_cases()) as advance:
            outcome = local.execute(plan, folder, workers=workers, progress=advance)
        outcome.failures.update(failed)
        record = _record(prepared, outcome, folder) | ({"artifacts": artifacts} if artifacts else {})
        record |= {"artifact_failures": lost} if lost else {}
        timing = _timing(folder, prepared, outcome)
        if len(outcome.failures) == len(prepared.plan.cases):
            if not folder.is_finished:
                folder.write_record(record)
            raise ModelError(f"every case failed; the first: {next(iter(outcome.failures.values()))}")
        replace_results(folder, stored, record)
        evidence, media = load_evidence(folder, workers), folder.path / "media"
        drawn = {name: [p for p in plan.of(name) if p.case.hash not in outcome.not_shown] for name in evidence}
        with ThreadPoolExecutor(1) as painter:
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
        run.conclude(record, judge(prepared.criteria, _measure(evidence)))
    return run


@contextmanager
def opened_folder(out: str | Path, study: str) -> Iterator[RunFolder]:
    """The folder of a run, held for writing, without what a killed writer left.

    The study is in it, unless the results there are of another: these stay until new ones are known.
    """
    folder = RunFolder(out)
    folder.check_usable()
    with folder.locked():
        folder.sweep()
        if not folder.is_finished:
            write_bytes(folder.path / STUDY, study.encode())
        yield folder


def replace_results(folder: RunFolder, study: str, record: dict[str, Any]) -> None:
    """Put a study and its record in place of those that are there; tables, verdict and report are to follow."""
    folder.clear_results()
    write_bytes(folder.path / STUDY, study.encode())
    folder.write_record(record)


def build_artifacts(
    plan: Plan, folder: RunFolder, progress: ProgressBar
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Build what the plan's models and stimuli are made of, unless it is there; says what, and how good it is.

    What could not be built (a training that diverged) comes second, by the hash of its recipe with the reason: the
    models that need it fail, and the others go on.
    """
    built, broken = {}, {}
    for name, part in plan.parts():
        try:
            built[name, part.recipe.hash] = build_part(name, part, folder, progress)
        except RoadworthyError as error:
            broken[part.recipe.hash] = str(error)
    return list(built.values()), broken


def build_part(system: str, part: Buildable, folder: RunFolder, progress: ProgressBar) -> dict[str, Any]:
    """Build an artifact of the run, unless it is there, and make it ready; what run.json says of it."""
    recipe = part.recipe
    with progress(f"{recipe.builder} {system}", part.work) as advance:
        home = ensure_artifact(folder, recipe, partial(part.build, progress=advance))
    part.load(home)
    return {"system": system, "hash": recipe.hash, **read_artifact(home)}


def build_needs(plan: Plan, folder: RunFolder, progress: ProgressBar) -> dict[str, str]:
    """Build what protocols read besides answers, unless it is there; says which could not be built, and why."""
    lost = {}
    needs = {need.recipe.hash: (planned.case.system, need) for planned in plan.cases for need in planned.needs}
    for recipe, (name, need) in needs.items():
        try:
            build_part(name, need, folder, progress)
        except RoadworthyError as error:
            lost[recipe] = str(error)
    return lost


def _stored_study(prepared: Prepared) -> Study:
    """The study with whole paths and its criteria inside, so that the copy in the run can be run by itself."""
    study, base = prepared.study, prepared.base.resolve()
    data = study.data.model_copy(
        update={
            "test": whole_paths(study.data.test, base),
            "train": whole_paths(study.data.train, base),
            "validation": whole_paths(study.data.validation, base),
            "ood": {name: whole_paths(spec, base) for name, spec in study.data.ood.items()},
            "classes": whole_paths(study.data.classes, base),
        }
    )
    models = {name: whole_paths(spec, base) for name, spec in study.models.items()}
    criteria = [criterion.model_dump(exclude_none=True) for criterion in prepared.criteria]
    return study.model_copy(update={"data": data, "models": models, "criteria": criteria or None})


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
            name: {"fingerprint": model.fingerprint(), "capabilities": sorted(model.capabilities)}
            for name, model in prepared.models.items()
        },
        "criteria": [criterion.model_dump() for criterion in prepared.criteria],
        "cases": [
            {
                "protocol": planned.case.protocol,
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


def _timing(folder: RunFolder, prepared: Prepared, outcome: local.Outcome) -> pd.DataFrame:
    """Seconds of inference per case, of the images that were shown in this session; earlier cases keep their row."""
    rows: list[dict[Any, Any]] = []
    earlier: dict[Any, dict[Any, Any]] = {}
    with suppress(InputError, KeyError):  # there is none yet, or it is damaged
        earlier = {(row["case"], row["model"]): row for row in folder.table("timing_cases").to_dict("records")}
    for planned in prepared.plan.cases:
        case = planned.case
        seconds, images = outcome.spent.get((case.hash, case.system), (0.0, 0))
        if images:
            where = {"model": case.system, "shift": case.stimulus.name, "level": case.stimulus.level}
            rows.append(
                {"case": case.key, **where, "repeat": case.stimulus.repeat, "images": images, "seconds": seconds}
            )
        elif (case.key, case.system) in earlier:
            rows.append(earlier[case.key, case.system])
    columns = ["case", "model", "shift", "level", "repeat", "images", "seconds"]
    return pd.DataFrame(rows, columns=columns)


def run_study(
    source: str | Path | dict[str, Any],
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    trust: bool = False,
    device: str = "auto",
    progress: ProgressBar = terminal_progress,
) -> Run:
    """Run a study file (or its content) into `out` (default: runs/<name of the study>); resumes by itself."""
    study, base = load_study(source)
    target = Path(out or Path("runs") / study.name).absolute()  # code of a model may change the working folder
    prepared = prepare(study, base=base, trust=trust, device=device, progress=progress)
    return execute(prepared, target, workers=workers, progress=progress)


def export_study(
    source: str | Path | dict[str, Any],
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: ProgressBar = terminal_progress,
) -> int:
    """Write the disturbed images of a study to a new folder, without opening its models; returns how many."""
    study, base = load_study(source)
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
    on_bad_image: str = "error",
    progress: ProgressBar = terminal_progress,
    **model_settings: Any,
) -> Run:
    """Evaluate one classifier under a suite of shifts.

    `model` is a path, a torch module, a callable or a `Model`; `data` a path, a `Dataset` or `(images, labels)`.
    Settings of the model such as `range="0-255"` go on to its adapter. The run lands in `out` (default: runs/<model>),
    and one that was stopped is resumed.
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
    opened = load_sized(model, study.size, name=name, trust=trust, device=device, base=base, **model_settings)
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
        study, base=base, models={name: opened}, data=dataset, on_bad_image=on_bad_image, progress=progress
    )
    return execute(prepared, target, workers=workers, progress=progress)


def _name_of(model: Any) -> str:
    if isinstance(model, str | Path):
        return Path(str(model).partition(":")[0]).stem or "model"
    return str(getattr(model, "name", None) or getattr(model, "__name__", None) or type(model).__name__)
