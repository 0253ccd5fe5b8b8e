"""What the stored readouts of a run say, protocol by protocol, and the verdict that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pandas as pd

from roadworthy.core import record as records
from roadworthy.core.errors import InputError, RoadworthyError, first_line
from roadworthy.core.files import inside
from roadworthy.core.record import RECORD, RunRecord
from roadworthy.core.tables import SOURCE
from roadworthy.core.validation import validated
from roadworthy.engine.artifacts import find_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.readouts import read_case, read_columns
from roadworthy.plugins import plugin_behind
from roadworthy.preparing import no_baseline, remarks
from roadworthy.protocols import find_protocol, protocol_of
from roadworthy.protocols.base import Evidence, Part, StoredCase
from roadworthy.protocols.explaining import explain
from roadworthy.protocols.joint_test.answers import unanswered
from roadworthy.verdict import Criterion, Decision, Measure, Measurement, Verdict, failed_parts, judge
from roadworthy.verdict.why import DECIDING, deciding_rows

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def blamed_on(*runs: Any, verified: bool = False) -> Iterator[None]:
    """For what reads runs that somebody else may have made: content that cannot be is one sentence.

    Where something is raised that is no error of ours, the runs are verified, unless they are being `verified`: if one
    is not whole, that is the cause. If all is as recorded, whoever wrote the record made it up, or this package has a
    defect: the sentence names both.
    """
    try:
        yield
    except (RoadworthyError, OSError, MemoryError, Warning):
        raise
    except Exception as error:
        if plugin_behind(error)[0]:
            raise
        by_path = {str(run.path): run for run in runs}
        names = ", ".join(by_path)
        problems = [] if verified else [problem for run in by_path.values() for problem in run.verify()]
        why = (
            f"it is not as it was written: {problems[0]}"
            if problems
            else (
                "its files are as recorded, so they were made up; if you made this run yourself, it is a defect of "
                "roadworthy, please report it"
            )
        )
        raise InputError(f"{names} cannot be read ({type(error).__name__}: {first_line(error)}); {why}") from error


def blames_the_run(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorator for methods of a run: see `blamed_on`."""

    @wraps(method)
    def call(run: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        with blamed_on(run, verified=method.__name__ in ("verify", "examine")):
            return method(run, *arguments, **options)

    return call


def stored_parts(folder: RunFolder, record: RunRecord) -> dict[str, list[Part]]:
    """What each protocol has of each source: its cases, their readouts read when asked for, and its context."""
    recorded = record.files_by_folder()
    lost = {name: artifact.reason for name, artifact in record.artifacts.items() if artifact.status == "failed"}
    find = partial(find_artifact, folder, failures=lost, recorded=recorded)

    def stored(asked: records.AskedCase) -> StoredCase:
        case = record.cases[asked.case]
        home = inside(folder.path, case.folder)
        return StoredCase(
            system=asked.system,
            stimulus=case.stimulus.value(),
            labels=asked.labels,
            failure=case.reason if case.status == "failed" else "",
            hash=asked.case,
            load=partial(read_case, home, asked.case, recorded=recorded.get(case.folder, {})),
            columns=partial(read_columns, home, asked.case, recorded=recorded.get(case.folder, {})),
            artifact=find,
        )

    parts: dict[str, list[Part]] = {name: [] for name in record.protocols}
    changed = f"{folder.path / RECORD} was changed or is incomplete"
    for name, own in record.protocols.items():
        for source, part in own.sources.items():
            context = validated(find_protocol(name).context, part.context, f"{changed}: context of {name}")
            cases, class_names = [*map(stored, part.cases)], record.sources[source].data.class_names
            measured = partial(_measured, folder, source)
            parts[name].append(Part(source, cases, context, class_names, measured=measured))
    return parts


def _measured(folder: RunFolder, source: str, name: str) -> pd.DataFrame:
    """The rows of a source in a stored table; none where the run has no such table."""
    if name not in folder.table_names():
        return pd.DataFrame()
    table = folder.table(name)
    return table[table[SOURCE] == source].drop(columns=SOURCE).reset_index(drop=True) if SOURCE in table else table


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


def judge_run(
    criteria: Sequence[Criterion],
    evidence: Mapping[str, Evidence],
    folder: RunFolder,
    record: RunRecord,
    *,
    decision: Decision | None = None,
    against: Measure | None = None,
) -> Verdict:
    """The verdict from the evidence of a run and from what failed in it by its record, with what decides it.

    decision   the head of the criteria: whether claims are corrected for their number
    against    what criteria against a baseline are told; needed only where there are such
    """
    kept: dict[tuple[str, float], Sequence[Measurement]] = {}

    def measure(criterion: Criterion, confidence: float) -> Sequence[Measurement]:
        key = criterion.model_dump_json(exclude={"confidence"}), confidence
        if key not in kept:
            own = evidence[protocol_of(criterion, evidence).name].measure
            if criterion.against and against is None:
                raise InputError(no_baseline(criterion))
            kept[key] = against(criterion, confidence) if criterion.against and against else own(criterion, confidence)
        return kept[key]

    parts, settings = stored_parts(folder, record), stored_settings(record)
    until_decided = bool(record.settings.get("until_decided"))
    candidates = {
        f"{source}/{model}" if source else model: partial(_narrowed, source, model, parts, settings)
        for source, own in record.sources.items()
        for model in own.models
    }
    verdict = judge(
        criteria,
        measure,
        remarks=remarks(criteria, parts, settings, until_decided),
        failed=failed_parts(record),
        questions=record.questions,
        not_run=unanswered(record),
        candidates=candidates if len(candidates) > 1 else {name: lambda criterion: criterion for name in candidates},
        correction=decision.correction if decision else "none",
    )
    return explain(verdict, evidence)


def _narrowed(
    source: str,
    model: str,
    parts: Mapping[str, Sequence[Part]],
    settings: Mapping[str, Any],
    criterion: Criterion,
) -> Criterion | None:
    """A criterion for one model of one source alone; None where it speaks of others, or of no model."""
    where = dict(criterion.where)
    for column, name in (("source", source), ("model", model)):
        wanted = where.get(column, name)
        if name not in (wanted if isinstance(wanted, list) else [wanted]):
            return None
        where |= {column: name} if name else {}
    narrowed, protocol = criterion.model_copy(update={"where": where}), protocol_of(criterion, parts)
    try:
        protocol.check_all(parts[protocol.name], narrowed, settings[protocol.name])
    except InputError:
        return None
    return narrowed


def deciding_table(verdict: Verdict, run: Path) -> pd.DataFrame:
    """The objects that decide the criteria of a verdict which are not met, with those pictures that the run has."""
    return DECIDING.frame(deciding_rows(verdict.findings, [path.name for path in run.glob("media/*")]))
