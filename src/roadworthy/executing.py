"""Running a prepared study into a folder: cases, tables, pictures, verdict and report."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd

from roadworthy.comparing import Baseline
from roadworthy.core import record as records
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.files import remove_if_empty
from roadworthy.core.record import HISTORY, RunRecord
from roadworthy.engine.announcing import announced
from roadworthy.engine.artifacts import is_built
from roadworthy.engine.executor import Executor
from roadworthy.engine.folder import STUDY, RunFolder, write_bytes
from roadworthy.engine.ledger import Outcome
from roadworthy.engine.local import timing_tables
from roadworthy.engine.memory import MemoryLimit
from roadworthy.engine.plan import THREADS, Graph, Plan, is_stored
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.engine.provenance import environment
from roadworthy.engine.recording import node_records, source_record
from roadworthy.engine.table_specs import TIMING_ARTIFACTS
from roadworthy.engine.taking_over import TakenOver
from roadworthy.engines import check_options, make_executor
from roadworthy.plugins import require_loaded
from roadworthy.preparing import Prepared
from roadworthy.protocols import find_protocol
from roadworthy.protocols.base import Evidence
from roadworthy.protocols.declared import answers_for_tables, check_own_tables, check_tables
from roadworthy.protocols.explaining import save_deciding
from roadworthy.protocols.latex import to_latex
from roadworthy.protocols.table_specs import BASELINE_CHANGES
from roadworthy.stored import Run, derived_tables, utc_now, write_history
from roadworthy.stored_evidence import judge_run, load_evidence
from roadworthy.verdict import Verdict, criteria_file_of
from roadworthy.verdict.history import lasting_history


def execute(
    prepared: Prepared,
    out: str | Path,
    *,
    workers: int | None = None,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
    engine: str = "local",
    address: str | None = None,
    executor: Executor | None = None,
    memory: str | int | None = None,
) -> Run:
    """Run a prepared study into a folder; one that holds part of it already is resumed, unless it is to be `fresh`.

    `engine` is where: see `engines.ENGINES`; `address` that of a cluster. With `memory`, such as "2GB", as many workers
    are at work as this process has memory for below it.

    Results that are there stay until all new ones are known: an attempt that fails leaves a finished run as it was.
    """
    require_loaded(prepared.study.plugins)
    if executor is not None and memory is not None:
        raise InputError("`memory=` is for the executor that is made here: give the `executor=` its limit itself")
    if executor is None:
        check_options(engine, address=address, memory=memory)
    limit = None if memory is None else MemoryLimit(memory)
    executor = executor or make_executor(
        engine, prepared, RunFolder(out).path, workers=workers, address=address, limit=limit, progress=progress
    )
    workers = workers or os.cpu_count() or 1
    stored = prepared.stored_study().to_yaml()
    baseline = _baseline(prepared, out)
    graph, name = prepared.plan.graph(), prepared.study.name
    with opened_folder(out, stored, fresh) as folder, announced(folder, name, graph):
        before = set(folder.files())
        taken = baseline.take_over(graph, folder) if baseline and not fresh else TakenOver()
        _warn_of_damage(taken)
        _warn_of_other_images(prepared.plan, folder)
        outcome = executor.run(graph, folder)
        workers = limit.fitting(workers) if limit else workers
        record = make_record(prepared, graph, outcome, folder)
        with _without_result(folder, record, before):
            evidence = _evidence(prepared, outcome, folder, record, workers)
        folder.clear_pictures()
        not_shown = outcome.not_shown.union(graph.unshowable(outcome.failures))
        drawn = [planned for planned in prepared.plan.cases if planned.case.hash not in not_shown]
        shown = {name: [planned for planned in drawn if planned.protocol == name] for name in evidence}
        earlier = _earlier_timings(folder)
        lasting = {name: answers.live(shown[name], earlier) for name, answers in evidence.items()}
        with progress("computing tables", 0), ThreadPoolExecutor(1) as painter:
            pictures = {
                name: painter.submit(answers.pictures, shown[name], folder.path / "media")
                for name, answers in evidence.items()
                if shown[name]
            }
            printed = {name: _tables(name, own) for name, own in evidence.items()}
            for name, own_tables in printed.items():
                check_own_tables(own_tables, name, evidence, "" not in prepared.sources)
            tables = {name: table for own in printed.values() for name, table in own.items()}
            analysed = derived_tables(tables, record)
            if baseline:
                analysed[BASELINE_CHANGES.name], reason = baseline.changes(folder, record, workers)
                record = baseline.noted(folder, record, taken, reason)
            painted = {name: picture.result() for name, picture in pictures.items()}
            verdict = _judged(prepared, evidence, folder, record, baseline)
            save_deciding(verdict, drawn, folder.path / "media")
        timing = timing_tables(folder, graph, outcome, baseline.run.folder if baseline else None)
        costs = {name: own.timing(*timing.values()) for name, own in evidence.items()}
        if not graph.artifacts:
            del timing[TIMING_ARTIFACTS.name]
        for name, own_tables in (*costs.items(), *lasting.items(), *painted.items()):
            check_own_tables(own_tables, name, evidence, "" not in prepared.sources)
        check_tables(analysed | timing, evidence, several_sources="" not in prepared.sources)
        replace_results(folder, stored, record)
        _write_tables(folder, tables, analysed, timing, *costs.values(), *lasting.values(), *painted.values())
        for protocol, own_tables in (*printed.items(), *costs.items(), *lasting.items()):
            _write_latex(folder, protocol, own_tables)
        run = Run(folder)
        file = criteria_file_of(prepared.study.criteria)
        run.conclude(record, replace(verdict, criteria_file=file))
    return run


def _judged(
    prepared: Prepared,
    evidence: Mapping[str, Evidence],
    folder: RunFolder,
    record: RunRecord,
    baseline: Baseline | None,
) -> Verdict:
    """The verdict of a study by its own criteria, some of them against its baseline."""
    against = baseline.against(folder, record) if baseline and any(c.against for c in prepared.criteria) else None
    verdict = judge_run(
        prepared.criteria,
        evidence,
        folder,
        record,
        decision=prepared.decision,
        against=against.measure if against else None,
    )
    return replace(verdict, decision=prepared.decision, baseline=against.run if against else None)


def _baseline(prepared: Prepared, out: str | Path) -> Baseline | None:
    """The run of an earlier version that the study names, if any."""
    named = prepared.study.baseline
    return Baseline.opened(named, prepared.base, out, bool(prepared.allowed.get("trust"))) if named else None


def _warn_of_damage(taken: TakenOver) -> None:
    """Say what of the baseline is damaged, and so is made again instead of taken over."""
    if taken.damaged:
        more = f" and {len(taken.damaged) - 1} more" if len(taken.damaged) > 1 else ""
        warnings.warn(f"damaged in the baseline, and made again: {taken.damaged[0]}{more}", stacklevel=3)


def _warn_of_other_images(plan: Plan, folder: RunFolder) -> None:
    """Say where stored answers are to images that something draws which is not here, as where it was exported."""
    asked = [planned for planned in plan.cases if planned.system.underlying and is_stored(planned.system.underlying)]
    lacking = {
        planned.showing.stimulus.name: planned.system.name
        for planned in asked
        for part in planned.showing.requires
        if not is_built(folder, part.recipe)
    }
    if lacking:
        name, model = next(iter(lacking.items()))
        warnings.warn(
            f"{name} is trained anew, and its images may not be those that {model} answered: other versions or another "
            "machine give others; run into the folder that export trained it in with `out=`",
            stacklevel=3,
        )


def _evidence(
    prepared: Prepared, outcome: Outcome, folder: RunFolder, record: RunRecord, workers: int
) -> dict[str, Evidence]:
    """What the readouts say; an error where every case failed, or no protocol has any value."""
    asked = [planned.case.hash for planned in prepared.plan.cases if planned.system.underlying is not None]
    if all(case in outcome.failures for case in asked):
        raise ModelError(f"every case failed; the first: {outcome.failures[asked[0]]}")
    evidence = load_evidence(folder, record, workers)
    lost = [own.lost() for own in evidence.values()]
    if all(lost):
        raise ModelError(lost[0])
    return evidence


def _earlier_timings(folder: RunFolder) -> dict[str, pd.DataFrame]:
    """The timings of the run that is in the folder, by table; what cannot be read is measured anew."""
    tables = {}
    for name in folder.table_names():
        if name.startswith("timing_"):
            with suppress(InputError):
                tables[name] = folder.table(name)
    return tables


def _tables(protocol: str, evidence: Evidence) -> dict[str, pd.DataFrame]:
    """The tables of a protocol's evidence; what is wrong with a third party's is an `InputError`."""
    with answers_for_tables(protocol):
        return evidence.tables()


def _write_tables(folder: RunFolder, *groups: Mapping[str, pd.DataFrame]) -> None:
    """Write tables by name; of two with one name, the last."""
    for name, table in {name: table for group in groups for name, table in group.items()}.items():
        folder.write_table(name, table)


def _write_latex(folder: RunFolder, protocol: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write the tables of a protocol that prints them as LaTeX."""
    if find_protocol(protocol).prints_latex:
        for name, table in tables.items():
            write_bytes(folder.path / "tables" / f"{name}.tex", to_latex(table).encode())


@contextmanager
def _without_result(folder: RunFolder, record: RunRecord, before: Collection[Path]) -> Iterator[None]:
    """Where nothing has a value: a finished run stays as it was, any other is recorded as it is."""
    try:
        yield
    except ModelError:
        if folder.is_finished:
            _take_back(folder, before)
        else:
            folder.write_record(record)
        raise


def _take_back(folder: RunFolder, before: Collection[Path]) -> None:
    """Remove the readouts that an attempt without any result has left in a finished run; what it built may stay."""
    for path in folder.files():
        if path not in before and not path.is_relative_to(folder.path / "artifacts"):
            path.unlink()
            remove_if_empty(path.parent)


@contextmanager
def opened_folder(out: str | Path, study: str, fresh: bool = False) -> Iterator[RunFolder]:
    """The folder of a run, held for writing, without what a killed writer left; of one to be `fresh` the history alone.

    The study is in it, unless the results there are of another: these stay until new ones are known.
    """
    folder = RunFolder(out)
    folder.check_usable(fresh)
    with folder.locked():
        if fresh:
            _keep_history(folder)
            folder.clear()
        folder.sweep()
        if not folder.is_finished:
            write_bytes(folder.path / STUDY, study.encode())
        yield folder


def replace_results(folder: RunFolder, study: str, record: RunRecord) -> None:
    """Put a study and its record in place of those that are there; tables, verdict and report are to follow.

    The verdict that was there stays in the history.
    """
    _keep_history(folder)
    folder.write_record(record)  # not finished from here on, whatever is cleared next
    folder.clear_results()
    write_bytes(folder.path / STUDY, study.encode())


def _keep_history(folder: RunFolder) -> None:
    """Have the history of verdicts in a file that lasts, whatever is cleared next, with what is lost of it."""
    history, lost = lasting_history(folder.path, utc_now())
    if lost:
        warnings.warn(f"the history of verdicts is not whole: {lost}", stacklevel=3)
    if lost or not (folder.path / HISTORY).is_file():  # else it is as recorded, and other bytes would not be
        write_history(folder.path, history)


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
        earlier_environments=[e for row, e in enumerate(earlier) if e != now and e not in earlier[:row]],
        settings={"batch": study.batch, "threads": THREADS}
        | ({"until_decided": study.until_decided} if study.until_decided else {}),
        plugins=list(study.plugins),
        sources={
            name: source_record(
                bench,
                prepared.plan,
                prepared.seen[name],
                prepared.changes(name),
                prepared.notes(name),
                prepared.found_in(name),
            )
            for name, bench in prepared.sources.items()
        },
        criteria=[criterion.model_dump() for criterion in prepared.criteria],
        decision=prepared.decision.model_dump() if prepared.decision else {},
        questions=list(study.questions),
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
