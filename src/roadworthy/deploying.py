"""A monitor that a run has tested: what it decided, its guard, and where possible one ONNX file with its model."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.manifests import check_whole
from roadworthy.core.record import RunRecord
from roadworthy.core.roles import Model
from roadworthy.engine.artifacts import find_artifact
from roadworthy.engine.folder import RunFolder, writing
from roadworthy.engine.plan import Bench
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.monitors.guard import Guard
from roadworthy.monitors.onnx_export import NotExportable, OnnxExport, export_onnx_monitor
from roadworthy.monitors.trials import Trial, try_on
from roadworthy.opening import OpeningSource, open_monitors
from roadworthy.plugins import GivenPlugins
from roadworthy.protocols.monitoring.image_decisions import decision_frame
from roadworthy.protocols.monitoring.names import NAME, VALID
from roadworthy.protocols.monitoring.scenes import ModelScenes
from roadworthy.protocols.monitoring.tables import Evidence
from roadworthy.protocols.monitoring.watching import Watched, open_watcher, watch
from roadworthy.stored import Run, open_run
from roadworthy.stored_evidence import stored_parts, stored_settings
from roadworthy.study import load_study

GUARD = "guard"
"""The folder of the guard in the folder that is written."""
SHOWN = 200
"""Test images on which the ONNX file is compared with the monitor."""


@dataclass(frozen=True)
class Deployed:
    """What was written: the guard and its folder, and the ONNX file or the sentence why there is none."""

    guard: Guard
    folder: Path
    onnx: OnnxExport | None
    why_no_onnx: str

    @property
    def finds_its_model(self) -> bool:
        """Whether `load_guard` finds the model by itself; else it must be given."""
        return self.guard.entry is not None

    def lines(self) -> list[str]:
        """What there is to say of it, a line each."""
        guard = self.guard
        lines = [f"monitor {guard.fitted.monitor.name} on model {guard.model.name} {guard.sentence()}"]
        given = "" if self.finds_its_model else f", with model {guard.model.name} as its second argument"
        lines.append(f"guard: {self.folder / GUARD} (roadworthy.load_guard reads it{given})")
        if self.onnx is None:
            return [*lines, f"no ONNX file: {self.why_no_onnx}"]
        return [
            *lines,
            f"ONNX: {self.onnx.path} and what to know of it in {self.folder / 'monitor.json'}",
            self.onnx.agreement.sentence(),
        ]


def export_monitor(
    run: str | os.PathLike[str],
    monitor: str,
    out: str | Path,
    *,
    model: str | None = None,
    source: str | None = None,
    include_preprocessing: bool = False,
    plugins: GivenPlugins = (),
    trust: bool = False,
    unpickle: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Deployed:
    """Write a monitor that a run of protocol monitoring has tested, with its model and threshold, to a new folder.

    monitor   its label in the run;  model, source: which ones, where the run has several
    out       OUT/guard is the folder that `load_guard` reads; OUT/monitor.onnx holds model, monitor and threshold in
              one file, and OUT/monitor.json says how to use it, where ONNX can hold them
    include_preprocessing   whether the ONNX file takes uint8 images in place of what the model's file takes
    trust, unpickle         as in `run_study`: the model is opened again, as the study names it
    """
    home = Path(out)
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise InputError(f"{home} is not an empty folder: name another one with `out=`")
    opened = _opened(run, plugins, trust)
    record = opened.record
    evidence, part_source = _evidence_of(opened, record, source)
    context = evidence.context
    name = _chosen("model", model, context.architectures)
    if monitor in context.left_out:
        raise InputError(f"the run did not test monitor {monitor}: {context.left_out[monitor]}")
    if monitor not in context.monitors:
        raise UnknownName("monitor of the run", monitor, context.monitors)
    cases = evidence.monitor_cases(name, monitor)
    scenes, settings = evidence.scenes(name), evidence.settings
    watched = watch(monitor, context, cases, scenes, [*context.benchmarks], settings, evidence.seed)
    if isinstance(watched, str):
        raise InputError(f"monitor {monitor} on model {name} has no threshold in the run: {watched}")
    valid = scenes.answered(VALID)
    assert not isinstance(valid, str)
    calibrated = open_watcher(monitor, context, cases, valid, settings, evidence.seed).calibrated
    bench, entry, base = _open_bench(opened, part_source, name, plugins, trust, unpickle, progress)
    loaded = _load(bench.models[name], opened.folder, record)
    parts = loaded, calibrated.fitted, calibrated.rule, watched.threshold
    guard = Guard(
        *parts,
        class_names=bench.data.class_names,
        size=bench.data.size,
        channels=bench.data.channels,
        entry=entry,
        base=base,
        tried_on=(*try_on(*parts, bench.data, seed=evidence.seed), *_tried_in_run(watched, scenes)),
    )
    with writing(home):
        return _written(guard, bench, home, include_preprocessing)


def monitor_decisions(
    run: str | os.PathLike[str],
    *,
    models: Sequence[str] | None = None,
    benchmarks: Sequence[str] | None = None,
    monitors: Sequence[str] | None = None,
    source: str | None = None,
    plugins: GivenPlugins = (),
    trust: bool = False,
) -> pd.DataFrame:
    """What monitors of a run of protocol monitoring decided about every image: see `decision_frame`.

    All models, benchmarks and monitors, unless some are named; `source` is needed where the run has several.
    `evaluate_decisions` takes the table.
    """
    opened = _opened(run, plugins, trust)
    evidence, _ = _evidence_of(opened, opened.record, source)
    return decision_frame(evidence, {"model": models, "benchmark": benchmarks, "monitor": monitors})


def _opened(run: str | os.PathLike[str], plugins: GivenPlugins, trust: bool) -> Run:
    """A finished run with its plugins."""
    opened = open_run(os.fspath(run), plugins=plugins, trust=trust)
    opened.folder.check_finished()
    opened.require_plugins()
    return opened


def _written(guard: Guard, bench: Bench, home: Path, include_preprocessing: bool) -> Deployed:
    """Write the guard, and the ONNX file where it can be made."""
    written, why_not = None, ""
    images = bench.data.batch(slice(0, min(SHOWN, len(bench.data)))).images
    options: dict[str, Any] = {
        "include_preprocessing": include_preprocessing,
        "size": bench.data.size,
        "class_names": guard.class_names,
        "tried_on": guard.tried_on,
    }
    try:
        parts = guard.model, guard.fitted, guard.rule, guard.threshold
        written = export_onnx_monitor(*parts, home, images=images, **options)
    except NotExportable as error:
        why_not = str(error)
    guard.save(home / GUARD)
    return Deployed(guard, home, written, why_not)


def _tried_in_run(watched: Watched, scenes: ModelScenes) -> list[Trial]:
    """What the monitor rejected of the images outside the domain, benchmark by benchmark."""
    trials = []
    for benchmark, decided in watched.decided.items():
        scene = scenes.scene(benchmark)
        if isinstance(decided, str) or isinstance(scene, str):
            trials.append(Trial(f"benchmark {benchmark}", reason=decided if isinstance(decided, str) else str(scene)))
        else:
            outside = scene.stream.ood
            trials.append(Trial.of(f"benchmark {benchmark}", decided.rejected[outside], scene.groups[outside]))
    return trials


def _evidence_of(run: Run, record: RunRecord, source: str | None) -> tuple[Evidence, str]:
    """What the run says of one source, and the name of that; '' where the study has one without a name."""
    if NAME not in record.protocols:
        raise InputError(
            f"{run.path} did not run protocol {NAME}, which finds the threshold of a monitor: run it first"
        )
    parts = {part.source: part for part in stored_parts(run.folder, record)[NAME]}
    if "" in parts:
        if source is not None:
            raise InputError("the study of this run has one source, without a name: leave out `source=`")
        chosen = ""
    else:
        chosen = _chosen("source", source, parts)
    settings = stored_settings(record)[NAME]
    return Evidence(replace(parts[chosen], settings=settings), settings, seed=record.seed), chosen


def _chosen(kind: str, name: str | None, known: Collection[str]) -> str:
    """The one that is named, or the only one."""
    if name is None:
        if len(known) > 1:
            raise InputError(f"the run has several {kind}s, {', '.join(known)}: name one with `{kind}=`")
        return next(iter(known))
    if name not in known:
        raise UnknownName(f"{kind} of the run", name, known)
    return name


def _open_bench(
    run: Run, source: str, model: str, plugins: GivenPlugins, trust: bool, unpickle: bool, progress: ProgressBar
) -> tuple[Bench, Mapping[str, Any] | None, Path]:
    """A source as the run's own copy of the study names it, the entry of the model, and where its paths start."""
    study, base = load_study(run.path / "study.yaml", plugins=plugins, trust=trust)
    section = study.by_source()[source]
    entry = section.models.get(model)
    if isinstance(entry, str) and entry.startswith("<"):
        raise InputError(
            f"model {model} lived in the memory of the process that tested it: make the guard there, in Python, with "
            "roadworthy.Guard"
        )
    if isinstance(entry, str) and entry.endswith(".onnx"):
        entry = {"onnx": entry}
    alone = section.model_copy(update={"models": {model: section.models[model]}})
    allowed = {"trust": trust, "unpickle": unpickle, "device": "auto"}
    monitors = open_monitors(study, base, trust=trust)
    bench, _, _ = OpeningSource(study, source, alone, base, monitors, progress, allowed=allowed, isolate=False).bench()
    return bench, entry if isinstance(entry, Mapping) and "onnx" in entry else None, base


def _load(model: Model, folder: RunFolder, record: RunRecord) -> Model:
    """The model with all that was built for it in the run."""
    failures = {name: artifact.reason for name, artifact in record.artifacts.items() if artifact.status == "failed"}
    for part in model.requires():
        if not part.loaded:
            home = find_artifact(folder, part.recipe.hash, failures, record.files_by_folder())
            check_whole(home, part.recipe.hash)
            part.load(home)
    return model
