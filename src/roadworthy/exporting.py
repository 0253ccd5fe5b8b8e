"""Exporting a study: what its images require is built, then every image is written, for a model that runs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.manifests import is_whole, named_parts
from roadworthy.core.remote import absolute_location
from roadworthy.engine.executor import load_built
from roadworthy.engine.folder import RunFolder, writing
from roadworthy.engine.local import LocalExecutor
from roadworthy.engine.plan import Graph, PlannedStimulus
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.opening import check_study_size, open_benches
from roadworthy.plugins import GivenPlugins
from roadworthy.protocols.export import check_exportable, export
from roadworthy.study import load_study


@dataclass(frozen=True)
class Exported:
    """What an export wrote: so many images, and in the folder `run` the artifacts that drew some of them, by name."""

    images: int
    built: tuple[str, ...]
    run: Path


def export_images(
    source: str | Path | dict[str, Any],
    folder: str | Path,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    plugins: GivenPlugins = (),
    trust: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Exported:
    """Write the images of a study to a new folder, without opening its models.

    What images require (GANs) is built as a run would, in the folder of the run that will read the answers: `out`,
    by default runs/<name of the study>. It is there when that run begins, so the run shows the very images that were
    exported; and what such a run has built already is used. Stopped, the same call goes on.
    """
    study, base = load_study(source, plugins=plugins, trust=trust)
    store = RunFolder(absolute_location(out or Path("runs") / study.name))
    check_study_size(study, len(study.by_source()))
    chosen = study.protocols.chosen()
    for protocol, settings in chosen:
        protocol.check_settings(settings)
    benches = open_benches(study, base, progress)
    stimuli: dict[str, tuple[PlannedStimulus, int, dict[str, None]]] = {}
    for protocol, settings in chosen:
        for name in settings.sources or benches:
            for showing in protocol.planned_stimuli(settings, benches[name]):
                stimuli.setdefault(showing.stimulus.hash, (showing, benches[name].chunk, {}))[2][name] = None
    shown = [(showing, chunk, [*sources]) for showing, chunk, sources in stimuli.values()]
    check_exportable([showing for showing, _, _ in shown], [*benches], Path(folder))
    graph = Graph((), study.batch, [showing for showing, _, _ in shown])
    if graph.artifacts:
        _build(graph, store, progress)
    artifacts = {hash_: named_parts(store.artifact(hash_)) for hash_ in graph.artifacts}
    images = sum(len(showing.data) for showing, _, _ in shown)
    classes = {name: bench.data.class_names for name, bench in benches.items()}
    with progress(f"export {study.name}", images) as advance, writing(Path(folder)):
        fixed: dict[str, Any] = {"batch": study.batch, "artifacts": artifacts}
        written = export(shown, classes, Path(folder), progress=advance, workers=workers or 1, **fixed)
    return Exported(written, tuple(node.name for node in graph.artifacts.values()), store.path)


def _build(graph: Graph, store: RunFolder, progress: ProgressBar) -> None:
    """Build what is not in the folder of the run yet, and load all of it.

    A finished run is not added to: its record names all that is in it.
    """
    store.check_usable()
    earlier = store.earlier_record()
    if earlier is not None and earlier.finished:
        lacking = [node.name for node in graph.artifacts.values() if not is_whole(store.artifact(node.hash), node.hash)]
        if lacking:
            raise InputError(
                f"the finished run in {store.path} lacks {lacking[0]}, which draws images of this study: choose "
                "another folder to build it in with `out=`"
            )
        load_built(graph, store, graph.artifacts)
        return
    with store.locked():
        store.sweep()
        outcome = LocalExecutor(progress=progress).run(graph, store)
    for reason in outcome.failures.values():
        raise ModelError(reason)
