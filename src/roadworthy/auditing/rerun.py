"""Rerunning a share of a run: chunks drawn at random are shown to the models again, and the answers compared.

Every chunk is done by the function that all executors use (`engine.chunks.answer_task`), with the same padded batches,
into a folder of its own, so that on the same type of machine the bits must be those that are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.auditing.substituting import Substitutes, local_study
from roadworthy.auditing.tolerances import part_differences
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.grouping import grouped
from roadworthy.core.manifests import is_whole, named_parts
from roadworthy.core.parquet import UnreadableParquet, parquet_table
from roadworthy.core.record import RunRecord
from roadworthy.core.roles import leaves
from roadworthy.engine.chunks import Task, answer_task, decode
from roadworthy.engine.executor import load_built
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import Graph, PlannedCase
from roadworthy.engine.progress import ProgressBar
from roadworthy.engine.readouts import part_name, part_path
from roadworthy.engine.workers import Turns
from roadworthy.preparing import Prepared, prepare
from roadworthy.study import Study


@dataclass(frozen=True)
class Chunk:
    """A chunk of a case that can be rerun: what is planned, in which graph, the number of the chunk and its images."""

    planned: PlannedCase
    graph: Graph
    number: int
    images: int

    @property
    def key(self) -> tuple[str, int]:
        """What it is known by in all runs of the study."""
        return self.planned.case.hash, self.number

    @property
    def model(self) -> tuple[str, str] | None:
        """The source and the model that it asks; None of other systems."""
        system = self.planned.system
        return (self.planned.source, self.planned.case.system) if system.kind == "model" else None


@dataclass(frozen=True)
class Rerun:
    """A chunk that was rerun: its file in the run, how many rows, and in what the fresh answers differ."""

    file: str
    system: str
    stimulus: str
    rows: int
    differences: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the report of a replay holds it."""
        return {
            "file": self.file,
            "system": self.system,
            "stimulus": self.stimulus,
            "rows": self.rows,
            "differences": list(self.differences),
        }


@dataclass
class Reruns:
    """What came of rerunning a share.

    chunks       those that were rerun;  of: how many could have been
    absent       what could not be rerun, with the reason
    differences  what is not as recorded besides answers: data, models, cases
    """

    chunks: list[Rerun] = field(default_factory=list)
    of: int = 0
    absent: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def images(self) -> int:
        """How many rows were compared."""
        return sum(chunk.rows for chunk in self.chunks)


def rerun_share(
    run: RunFolder,
    study: Study,
    given: Substitutes,
    *,
    share: float,
    seed: int,
    exact: bool,
    fresh: Path,
    allowed: Mapping[str, Any],
    same_version: bool,
    progress: ProgressBar,
) -> Reruns:
    """Show a random share of the chunks of a run to its models again, at least one per model, and compare.

    fresh         an empty folder for the new answers;  allowed: `trust`, `unpickle`, `device`
    exact         whether answers must be equal to the bit
    same_version  whether this version made the run: then the study must plan the cases that the run has
    """
    record, reruns = run.record(), Reruns()
    local = local_study(study, record, given)
    reruns.absent |= local.absent
    reruns.differences += local.differences
    if not local.study.sources and not local.study.models:
        return reruns
    prepared = _prepared(local.study, run.path, record, allowed, reruns, progress)
    known = _check_identity(prepared, record, reruns)
    if same_version and not reruns.absent:
        _check_cases(prepared, record, reruns)
    chunks = _available(run, record, known, reruns)
    reruns.of = len(chunks)
    picked = draw_chunks(chunks, share, seed)
    with progress("rerunning a share", sum(chunk.images for chunk in picked)) as advance:
        for (graph, *_), together in grouped((_together(chunk), chunk) for chunk in picked).items():
            reruns.chunks += _asked(run, record, together, graph, RunFolder(fresh), exact, reruns)
            advance(sum(chunk.images for chunk in together))
    return reruns


def _together(chunk: Chunk) -> tuple[Graph, str, int, int]:
    """What chunks have in common that are made once for all systems."""
    return chunk.graph, chunk.planned.showing.stimulus.hash, chunk.planned.chunk, chunk.number


def draw_chunks(chunks: Sequence[Chunk], share: float, seed: int) -> list[Chunk]:
    """A share of the chunks, drawn by the seed: one of each model first, then others of all, each as likely as any."""
    generator = np.random.default_rng(seed)
    ordered = sorted(chunks, key=lambda chunk: chunk.key)
    by_model = grouped((chunk.model, chunk) for chunk in ordered if chunk.model is not None)
    picked = {own[generator.integers(len(own))].key for _, own in sorted(by_model.items())}
    rest = [chunk.key for chunk in ordered if chunk.key not in picked]
    further = min(len(rest), max(0, math.ceil(share * len(ordered) - 1e-9) - len(picked)))
    picked |= {rest[row] for row in generator.choice(len(rest), further, replace=False)} if further else set()
    return [chunk for chunk in ordered if chunk.key in picked]


def _prepared(
    study: Study, base: Path, record: RunRecord, allowed: Mapping[str, Any], reruns: Reruns, progress: ProgressBar
) -> list[Prepared]:
    """The study, opened and planned; where that is not possible as a whole, protocol by protocol."""
    bad = any(source.data.bad_images for source in record.sources.values())
    options: dict[str, Any] = {**allowed, "accept_chance": True, "rehearse": False, "progress": progress}
    options["on_bad_image"] = "skip" if bad else "error"
    try:
        return [prepare(study, base=base, **options)]
    except RoadworthyError as error:
        chosen = study.protocols.chosen()
        if len(chosen) == 1:
            reruns.absent[f"protocol {chosen[0][0].name}"] = str(error)
            return []
    prepared = []
    for protocol, _ in chosen:
        others = {other.name: None for other, _ in chosen if other.name != protocol.name}
        alone = study.model_copy(update={"protocols": study.protocols.model_copy(update=others)})
        try:
            prepared.append(prepare(alone, base=base, **options))
        except RoadworthyError as error:
            reruns.absent[f"protocol {protocol.name}"] = str(error)
    return prepared


def _check_identity(prepared: Iterable[Prepared], record: RunRecord, reruns: Reruns) -> list[Prepared]:
    """Compare the fingerprints of data and models with those of the run; what was opened, once each is compared."""
    known, seen = list(prepared), set[str]()
    for own in known:
        for source, bench in own.sources.items():
            recorded, of = record.sources[source], f" of {source}" if source else ""
            here = bench.data.fingerprint()
            what = f"test data{of}"
            if what not in seen and here != recorded.data.fingerprint:
                reruns.differences.append(
                    f"{what}: these are not the images of the run (fingerprint {here}, recorded is "
                    f"{recorded.data.fingerprint})"
                )
            seen.add(what)
            for name, model in bench.models.items():
                what, expected = f"model {name}{of}", recorded.models[name].fingerprint
                if what not in seen and (now := bench.fingerprint(model)) != expected:
                    reruns.differences.append(
                        f"{what}: it is not the model of the run (fingerprint {now}, recorded is {expected})"
                    )
                seen.add(what)
    return known


def _check_cases(prepared: Iterable[Prepared], record: RunRecord, reruns: Reruns) -> None:
    """Name cases that the study asks for and the run does not have, or the other way round."""
    if reruns.differences:
        return  # other data or models have other cases
    planned = {hash_: node for own in prepared for hash_, node in own.plan.graph().cases.items()}
    for hash_, node in planned.items():
        if hash_ not in record.cases:
            case = node.planned.case
            reruns.differences.append(f"case {case.key} of {case.system} is asked for by the study, but not in the run")
    for hash_, stored in record.cases.items():
        if hash_ not in planned:
            reruns.differences.append(f"case {stored.folder} of {stored.system} is in the run, but not in its study")


def _available(run: RunFolder, record: RunRecord, prepared: Iterable[Prepared], reruns: Reruns) -> list[Chunk]:
    """Every stored chunk whose data, model and artifacts are here; what lacks one is named with the reason."""
    whole, chunks = cache(lambda recipe: is_whole(run.artifact(recipe), recipe)), dict[tuple[str, int], Chunk]()
    failed = sum(case.status == "failed" for case in record.cases.values())
    if failed:
        reruns.absent["failed cases"] = f"{failed} of {len(record.cases)} failed in the run and have no answers"
    for own in prepared:
        graph = own.plan.graph()
        for hash_, node in graph.cases.items():
            stored, planned = record.cases.get(hash_), node.planned
            if stored is None or stored.status != "done" or planned.refused:
                continue
            lacking = [need for need in graph.requirements(hash_) if need in graph.artifacts and not whole(need)]
            if lacking:
                built = graph.artifacts[lacking[0]]
                reruns.absent[f"{stored.system}"] = (
                    f"the bundle does not hold {built.name} ({built.parts[0].recipe.builder}), which it needs: ask for "
                    "a bundle with artifacts"
                )
                continue
            if _varies(planned, record):
                reruns.absent[f"{stored.system}"] = "it answers the same images differently when it is asked again"
                continue
            parts = len(named_parts(run.path / stored.folder))
            size, total = planned.chunk, len(planned.showing.data)
            for number in range(parts):
                chunk = Chunk(planned, graph, number, min(size, total - number * size))
                chunks.setdefault(chunk.key, chunk)
    return [*chunks.values()]


def _varies(planned: PlannedCase, record: RunRecord) -> bool:
    """Whether the answers to a case cannot be the same another time."""
    known = record.sources[planned.source].models.get(planned.case.system)
    model = planned.system.underlying
    return bool(known and known.changes_by) or (model is not None and any(leaf.varies for leaf in leaves(model)))


def _asked(
    run: RunFolder,
    record: RunRecord,
    together: Sequence[Chunk],
    graph: Graph,
    fresh: RunFolder,
    exact: bool,
    reruns: Reruns,
) -> list[Rerun]:
    """Rerun chunks of one stimulus and compare the answers of each system with those that are stored."""
    first = together[0]
    cases = tuple(chunk.planned for chunk in together)
    try:
        load_built(graph, run, set[str]().union(*(graph.requirements(chunk.key[0]) for chunk in together)))
        task = Task(first.planned.showing, first.planned.chunk, first.number, cases)
        turns = Turns(model for planned in cases if (model := planned.system.underlying) is not None)
        answered = answer_task(task, fresh, batch=graph.batch, decoded=_decoded, turns=turns, stopped=lambda: False)
        failures = {one.case: one.failure for one in answered}
    except RoadworthyError as error:
        failures = {planned.case.hash: str(error) for planned in cases}
    return [_compared(run, record, chunk, fresh, failures[chunk.key[0]], exact) for chunk in together]


def _decoded(task: Task) -> Any:
    return decode(task.showing.data, task.size, task.chunk)


def _compared(run: RunFolder, record: RunRecord, chunk: Chunk, fresh: RunFolder, failure: str, exact: bool) -> Rerun:
    """What became of one chunk."""
    case, stored = chunk.planned.case, record.cases[chunk.key[0]]
    stimulus = f"{case.stimulus.name} {case.stimulus.level:g}, repeat {case.stimulus.repeat}"
    known: dict[str, Any] = {
        "file": f"{stored.folder}/{part_name(chunk.number)}",
        "system": stored.system,
        "stimulus": stimulus,
    }
    if failure:
        return Rerun(**known, rows=0, differences=(f"it could not be rerun: {failure}",))
    before, after = run.path / known["file"], part_path(fresh.case(case.key), chunk.number)
    if before.read_bytes() == after.read_bytes():
        return Rerun(**known, rows=chunk.images)
    try:
        rows = part_differences(parquet_table(before), parquet_table(after), exact=exact)
    except UnreadableParquet as error:
        return Rerun(**known, rows=0, differences=(f"it cannot be read: {error}",))
    return Rerun(**known, rows=chunk.images, differences=tuple(row.words() for row in rows))
