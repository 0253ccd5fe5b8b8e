"""Commands that test models: demo, evaluate, run, check and export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_criteria, print_line, say, say_failed, say_remarks, write_text
from roadworthy.cli.options import (
    AcceptChance,
    AcceptVarying,
    Address,
    Arch,
    BadImages,
    BaselineOption,
    Boxes,
    BoxOutput,
    CandidatesOption,
    Classes,
    ClassOutput,
    Colour,
    Complete,
    CriteriaOption,
    DataOption,
    Device,
    Engine,
    EngineOption,
    Format,
    Fresh,
    Headers,
    Isolate,
    Layout,
    Memory,
    MetricsOption,
    ModelOption,
    ModelVersion,
    MonitorNameOption,
    OnBadImage,
    OutliersOption,
    OutOption,
    Outputs,
    PluginOption,
    Quiet,
    Range,
    Seed,
    Size,
    StudyArgument,
    SuiteOption,
    Threads,
    TrainOption,
    Trust,
    Unpickle,
    UntilDecided,
    ValidationOption,
    Workers,
    WriteStudy,
    given_headers,
    given_settings,
)
from roadworthy.core.errors import InputError, from_here
from roadworthy.core.remote import absolute_location

if TYPE_CHECKING:
    from roadworthy.api import Prepared, Run
    from roadworthy.engine.progress import ProgressBar


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run, or its address.")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Test small classifiers on drawn signs; needs nothing from outside."""
    from roadworthy.demo import run_demo, what_is_missing

    if not quiet and (missing := what_is_missing()):
        say(f"note: {missing}")
    _print_summary(run_demo(out, progress=_progress(quiet)), quiet)


@app.command()
def evaluate(
    model: CandidatesOption,
    data: DataOption,
    suite: SuiteOption = None,
    outliers: OutliersOption = None,
    train: TrainOption = None,
    validation: ValidationOption = None,
    monitor: MonitorNameOption = None,
    metric: MetricsOption = None,
    criteria: CriteriaOption = None,
    until_decided: UntilDecided = False,
    complete: Complete = False,
    out: OutOption = None,
    classes: Classes = None,
    range_: Range = None,
    layout: Layout = None,
    outputs: Outputs = None,
    colour: Colour = None,
    boxes: Boxes = None,
    box_output: BoxOutput = None,
    class_output: ClassOutput = None,
    format_: Format = None,
    header: Headers = None,
    size: Size = None,
    device: Device = "auto",
    arch: Arch = None,
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
    seed: Seed = 0,
    engine: EngineOption = Engine.local,
    address: Address = None,
    workers: Workers = None,
    memory: Memory = None,
    on_bad_image: BadImages = OnBadImage.error,
    name: Annotated[str | None, typer.Option(help="Name of the model in tables and report.")] = None,
    model_version: ModelVersion = None,
    accept_chance: AcceptChance = False,
    varies: AcceptVarying = None,
    isolate: Isolate = None,
    write_study: WriteStudy = None,
    fresh: Fresh = False,
    baseline: BaselineOption = None,
    quiet: Quiet = False,
) -> None:
    """Test a model, or several candidates, under a suite and write a report."""
    from roadworthy import api
    from roadworthy.evaluation import named_paths

    settings = given_settings(
        range=range_, layout=layout, outputs=outputs, colour=colour, arch=arch, version=model_version
    ) | given_settings(boxes=boxes, box_output=box_output, class_output=class_output, isolate=isolate, varies=varies)
    settings |= given_settings(format=format_, headers=given_headers(header))
    given: dict[str, Any] = {
        **{"suite": suite, "metrics": metric or (), "criteria": criteria, "baseline": baseline},
        **{"outliers": named_paths(outliers or (), "set of outlier"), "train": train, "validation": validation},
        **{"monitor": monitor, "until_decided": until_decided, "complete": complete},
        **{"name": name, "size": size, "classes": str(classes) if classes else None, "seed": seed},
        **{"plugins": plugin or (), "trust": trust},
        **settings,
    }
    candidates: Any = named_paths(model, "model")
    if len(candidates) == 1:  # its name may be that of a kind of model
        ((own_name, candidates),) = candidates.items()
        given["name"] = name or own_name
    how: dict[str, Any] = {
        **{"out": out, "workers": workers, "memory": memory, "engine": engine.value, "address": address},
        **{"device": device, "unpickle": unpickle, "on_bad_image": on_bad_image.value},
        **{"accept_chance": accept_chance, "fresh": fresh},
    }
    if write_study:
        _check_new(write_study, how)
        write_text(write_study, api.study_of_evaluation(candidates, data, **given))
        print_line(f"study: {from_here(write_study)}; roadworthy export and roadworthy run take it")
        return
    run = api.evaluate(candidates, data, **how, progress=_progress(quiet), **given)
    _conclude(run, quiet)


DEFAULTS = (None, False, "auto", Engine.local.value, OnBadImage.error.value)
"""What options of a run are that nobody gave."""


def _check_new(study: Path, how: Mapping[str, Any]) -> None:
    """Refuse to write a study in place of a file, or to leave out options of a run that are given."""
    for name in (name for name, value in how.items() if value not in DEFAULTS):
        option = f"--{name.replace('_', '-')}"
        raise InputError(f"--write-study runs nothing, so that {option} would be ignored: give it to the run")
    if study.exists():
        raise InputError(f"{study} is there already: choose another name, or remove it")


def _progress(quiet: bool) -> ProgressBar:
    from roadworthy.engine.progress import no_progress, terminal_progress

    return no_progress if quiet else terminal_progress


def _conclude(run: Run, quiet: bool) -> None:
    """Print the summary of a run and exit with the verdict's exit code."""
    from roadworthy.verdict.judge import EXIT_CODES

    raise typer.Exit(EXIT_CODES[_print_summary(run, quiet)])


def _print_summary(run: Run, quiet: bool) -> str:
    """Print the result of a run in a few lines, or only its failures; return the verdict's status."""
    import json

    from roadworthy.core.record import read_recorded

    verdict = json.loads(read_recorded(run.path, "verdict.json"))
    if not quiet:
        for line in run.headline():
            print_line(line)
        print_criteria(verdict)
        for line in run.baseline_lines():
            print_line(line)
    say_failed(run)
    for line in run.history_lines():
        say(line)
    if not quiet:
        print_line(f"report: {from_here(run.path / 'report.html')}")
    return str(verdict["status"])


@app.command()
def run(
    study: StudyArgument,
    out: OutOption = None,
    engine: EngineOption = Engine.local,
    address: Address = None,
    workers: Workers = None,
    memory: Memory = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with a time estimate; write nothing.")
    ] = False,
    device: Device = "auto",
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
    accept_chance: AcceptChance = False,
    fresh: Fresh = False,
    quiet: Quiet = False,
) -> None:
    """Run a study; resumes by itself."""
    from roadworthy import api
    from roadworthy.engines import check_options
    from roadworthy.study import load_study

    loaded, base = load_study(study, plugins=plugin or (), trust=trust)
    target = absolute_location(out or Path("runs") / loaded.name)  # code of a model may change the working folder
    if dry_run and memory:
        raise InputError("--dry-run runs nothing, so that --memory would be ignored: leave one of them out")
    check_options(engine.value, address=address, memory=memory, out=target)
    progress = _progress(quiet)
    prepared = api.prepare(
        loaded, base=base, trust=trust, unpickle=unpickle, device=device, accept_chance=accept_chance, progress=progress
    )
    if dry_run:
        _print_plan(prepared, target, workers)
        return
    options: dict[str, Any] = {"engine": engine.value, "address": address, "memory": memory, "progress": progress}
    _conclude(api.execute(prepared, target, workers=workers, fresh=fresh, **options), quiet)


def _print_plan(prepared: Prepared, out: str | Path, workers: int | None) -> None:
    import os

    from roadworthy.engine import ledger
    from roadworthy.engine.artifacts import is_built
    from roadworthy.engine.estimating import estimate_time
    from roadworthy.engine.folder import RunFolder
    from roadworthy.engine.progress import duration

    folder, graph = RunFolder(out), prepared.plan.graph()
    folder.refresh()
    done = sum(ledger.is_done(folder, node.planned) for node in graph.cases.values())
    estimate = estimate_time(graph, folder, workers or os.cpu_count() or 1)
    for source, bench in prepared.sources.items():
        data = bench.data
        counts = f"{len(data):,} images of {len(set(data.groups)):,} objects, {len(data.class_names)} classes"
        print_line(f"data      {f'{source}: ' if source else ''}{data.name}: {counts}")
        if division := bench.division():
            print_line(f"          {division}")
    print_line(f"models    {', '.join(prepared.models)}")
    for protocol in prepared.contexts:
        cases = [planned for planned in prepared.plan.cases if planned.protocol == protocol]
        print_line(f"protocol  {protocol}: {len(cases)} cases")
    if prepared.plan.stimuli:
        print_line(f"stimuli   {len(prepared.plan.stimuli)} (undisturbed data among them)")
    most = "at most " if prepared.study.until_decided else ""
    print_line(f"cases     {len(graph.cases)}, {done} of them done; {most}{graph.image_cases():,} answers in all")
    waiting = [node.parts[0] for node in graph.artifacts.values() if not is_built(folder, node.parts[0].recipe)]
    built = (
        f", at most {duration(estimate.building)} of it to build {estimate.timed} artifacts" if estimate.timed else ""
    )
    untimed = f", without {estimate.untimed} artifacts that are built first" if estimate.untimed else ""
    print_line(f"time      about {duration(estimate.total)}{built}{untimed}")
    for activity in dict.fromkeys(part.activity for part in waiting):
        work = [part.work for part in waiting if part.activity == activity]
        print_line(f"{activity:<9} {len(work)} of them; images are looked at {sum(work):,} times")
    print_line(f"run       {from_here(folder.path)}")
    say_remarks(prepared.remarks)


@app.command()
def check(
    model: ModelOption,
    data: DataOption,
    classes: Classes = None,
    range_: Range = None,
    layout: Layout = None,
    outputs: Outputs = None,
    colour: Colour = None,
    boxes: Boxes = None,
    box_output: BoxOutput = None,
    class_output: ClassOutput = None,
    format_: Format = None,
    header: Headers = None,
    size: Size = None,
    device: Device = "auto",
    arch: Arch = None,
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
    sample: Annotated[int, typer.Option(min=1, help="How many images to try.")] = 512,
    model_version: ModelVersion = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 where something wrong was found.")] = False,
) -> None:
    """Try a model on a sample: shapes, range, class order, form of boxes, how good it is, what it can be tested for."""
    from roadworthy import api

    settings = given_settings(
        range=range_, layout=layout, outputs=outputs, colour=colour, arch=arch, version=model_version
    ) | given_settings(boxes=boxes, box_output=box_output, class_output=class_output)
    settings |= given_settings(format=format_, headers=given_headers(header))
    report = api.check(
        model,
        data,
        sample=sample,
        size=size,
        classes=classes,
        device=device,
        plugins=plugin or (),
        trust=trust,
        unpickle=unpickle,
        **settings,
    )
    for line in report.lines():
        print_line(line)
    if strict and not report.ok:
        raise typer.Exit(1)


@app.command()
def export(
    study: StudyArgument,
    folder: Annotated[Path, typer.Argument(help="A new folder for the images.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder (or address) of the run that will read the answers; GANs are trained there."),
    ] = None,
    workers: Threads = None,
    plugin: PluginOption = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Write the disturbed images of a study for an owner who runs the model elsewhere."""
    from roadworthy.exporting import export_images

    exported = export_images(
        study, folder, out=out, workers=workers, plugins=plugin or (), trust=trust, progress=_progress(quiet)
    )
    if quiet:
        return
    print_line(f"{exported.images:,} images in {folder}; {folder / 'HOWTO.md'} says how to answer")
    if exported.built:
        where = from_here(exported.run)
        print_line(f"networks that drew some: {len(exported.built)} in {where}; run the study with the answers there")
