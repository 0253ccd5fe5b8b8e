"""The command line. Heavy imports wait until a command needs them, so that `--help` answers at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from roadworthy.core.errors import RoadworthyError, from_here

if TYPE_CHECKING:
    from roadworthy.api import Prepared, Run

app = typer.Typer(
    name="roadworthy",
    help="Is an image classifier fit for the road? Disturb its test data, measure, judge, report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Engine(StrEnum):
    """Where cases run."""

    local = "local"


class OnBadImage(StrEnum):
    """What to do with an image that cannot be read."""

    error = "error"
    skip = "skip"


class Kind(StrEnum):
    """What `list` can list."""

    shifts = "shifts"
    outliers = "outliers"
    monitors = "monitors"
    metrics = "metrics"
    protocols = "protocols"
    models = "models"
    data = "data"
    suites = "suites"


ModelOption = Annotated[str, typer.Option("--model", help="An .onnx, torch or predictions file, or code.py:function.")]
DataOption = Annotated[
    str, typer.Option("--data", help="A folder with a subfolder per class, a .csv/.parquet manifest or .npz.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder of the run; one that holds part of it is resumed.")
]
Classes = Annotated[Path | None, typer.Option(help="File with one class name per line, in the model's order.")]
Range = Annotated[str | None, typer.Option("--range", help="0-1, 0-255, -1-1, imagenet or MEAN/STD.")]
Layout = Annotated[str | None, typer.Option(help="auto, nchw or nhwc.")]
Outputs = Annotated[str | None, typer.Option(help="auto, probabilities or logits.")]
Colour = Annotated[str | None, typer.Option(help="rgb or bgr.")]
Size = Annotated[str | None, typer.Option(help="HEIGHTxWIDTH that images are brought to before any shift.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Arch = Annotated[str | None, typer.Option(help="For torch weights: file.py:factory that builds the network.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run code that comes with the model; only if you trust its author.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker threads; never changes a result.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all randomness.")]


STOPPED = 130
"""The exit code after Ctrl-C, which is also what typer makes of it."""
PATIENCE = 4.0
"""Seconds that a command has after Ctrl-C to end by itself."""
UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""What typer raises on words that make no command; it comes with its own copy of click or uses the one installed."""


def main() -> None:
    """Entry point: errors that a user can act on are one sentence and an exit code, never a traceback."""
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # such an image is an error of ours
    try:
        with _watched():
            code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
            if code == STOPPED:
                _leave()
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        _leave()
    except RoadworthyError as error:
        _say(f"error: {_one_line(str(error))}")
        sys.exit(error.exit_code)
    except UsageError as error:
        place = error.ctx.command_path if error.ctx else "roadworthy"
        _say(f"error: {_one_line(error.format_message()).replace('Value error, ', '').rstrip('.')}; see {place} --help")
        sys.exit(RoadworthyError.exit_code)
    except OSError as error:
        where = "" if error.filename is None else f" ({str(error.filename)!r})"
        _say(f"error: {error.strerror or error}{where}")
        sys.exit(RoadworthyError.exit_code)
    except MemoryError:
        _say("error: there is not enough memory; try a smaller --size, fewer --workers or less data at once")
        sys.exit(RoadworthyError.exit_code)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        _say("error: this is a defect of roadworthy, not of your input; please report it with the lines above")
        sys.exit(70)


def _one_line(text: str) -> str:
    """A message as one line that a terminal shows as it is: no control characters.

    >>> _one_line("no file\\x1b[2J\\n  a.png")
    'no file\\\\x1b[2J a.png'
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


@contextmanager
def _watched() -> Iterator[None]:
    """End the process a few seconds after the first Ctrl-C, even where code of a model hangs and never hears of it.

    The interpreter notes the signal in a pipe at once, whatever its main thread is at, and a thread waits for that. A
    child process that a model forks notes nothing there.
    """
    _note_nothing_in_children()
    process = os.getpid()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while (byte := os.read(reading, 1)) and byte != bytes([signal.SIGINT]):
            pass
        os.close(reading)
        if byte:
            time.sleep(PATIENCE)
            _leave()

    threading.Thread(target=watch, name="interrupt", daemon=True).start()
    try:
        yield
    finally:
        if os.getpid() == process:
            signal.set_wakeup_fd(before)
            os.close(writing)


@cache
def _note_nothing_in_children() -> None:
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


def _leave() -> NoReturn:
    """Say that the command was stopped and end at once, without waiting for threads: files are written whole anyway."""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    _say(f"{show_cursor}stopped; run the same command again to go on from here")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


def _say(text: str) -> None:
    typer.echo(text.encode("utf-8", "backslashreplace").decode(), err=True)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
) -> None:
    """Test a small classifier on drawn signs; needs nothing from outside."""
    from roadworthy.demo import run_demo

    _print_summary(run_demo(out))


@app.command()
def evaluate(
    model: ModelOption,
    data: DataOption,
    suite: Annotated[
        str, typer.Option(help="quick, standard or full; a version such as standard@1 pins it.")
    ] = "standard",
    criteria: Annotated[Path | None, typer.Option(help="YAML file of acceptance criteria.")] = None,
    out: OutOption = None,
    classes: Classes = None,
    range_: Range = None,
    layout: Layout = None,
    outputs: Outputs = None,
    colour: Colour = None,
    size: Size = None,
    device: Device = "auto",
    arch: Arch = None,
    trust: Trust = False,
    seed: Seed = 0,
    workers: Workers = None,
    on_bad_image: Annotated[
        OnBadImage, typer.Option(help="Stop at a corrupt image, or skip, record and count it.")
    ] = OnBadImage.error,
    name: Annotated[str | None, typer.Option(help="Name of the model in tables and report.")] = None,
) -> None:
    """Test one classifier under a suite of shifts and write a report."""
    from roadworthy import api

    settings = _model_settings(range=range_, layout=layout, outputs=outputs, colour=colour, arch=arch)
    run = api.evaluate(
        model,
        data,
        suite=suite,
        criteria=criteria,
        out=out,
        name=name,
        size=size,
        classes=str(classes) if classes else None,
        seed=seed,
        workers=workers,
        device=device,
        trust=trust,
        on_bad_image=on_bad_image.value,
        **settings,
    )
    _conclude(run)


def _model_settings(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _conclude(run: Run) -> None:
    """Say what came out and leave with the verdict's exit code."""
    from roadworthy.verdict.judge import EXIT_CODES

    raise typer.Exit(EXIT_CODES[_print_summary(run)])


def _print_summary(run: Run) -> str:
    """What came out, in a few lines; returns the verdict's status."""
    import json

    from roadworthy.report import headline

    for line in headline(run.path):
        typer.echo(line)
    verdict = json.loads((run.path / "verdict.json").read_text())
    _print_criteria(verdict)
    for failure in run.failures:
        stimulus = failure["stimulus"]
        _say(f"failed: {failure['system']} at {stimulus['name']} {stimulus['level']}: {failure['reason']}")
    typer.echo(f"report: {from_here(run.path / 'report.html')}")
    return str(verdict["status"])


def _print_criteria(verdict: dict[str, Any]) -> None:
    for criterion in verdict["criteria"]:
        typer.echo(f"{criterion['status']:>12}  {criterion['id']}: {criterion['because']}")


def _print_verdict(verdict: dict[str, Any]) -> None:
    _print_criteria(verdict)
    typer.echo(f"verdict: {verdict['status']}" if verdict["criteria"] else "verdict: none (no criteria given)")


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study file (YAML).")],
    out: OutOption = None,
    engine: Annotated[Engine, typer.Option(help="Where cases run.")] = Engine.local,
    workers: Workers = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with a time estimate; write nothing.")
    ] = False,
    device: Device = "auto",
    trust: Trust = False,
) -> None:
    """Run a study; resumes by itself."""
    from roadworthy import api
    from roadworthy.study import is_od_study, load_study

    if is_od_study(study):
        _run_od_test(study, out, workers, dry_run, device, trust)
        return
    loaded, base = load_study(study)
    target = (out or Path("runs") / loaded.name).absolute()  # code of a model may change the working folder
    prepared = api.prepare(loaded, base=base, trust=trust, device=device)
    if dry_run:
        _print_plan(prepared, target, workers)
        return
    _conclude(api.execute(prepared, target, workers=workers))


def _run_od_test(study: Path, out: Path | None, workers: int | None, dry_run: bool, device: str, trust: bool) -> None:
    from roadworthy.od_testing import execute_od_test, prepare_od_study

    base = Path.cwd()  # code of a model may change it
    test = prepare_od_study(study, trust=trust, device=device)
    target = base / (out or Path("runs") / test.name)
    if dry_run:
        typer.echo(f"od_test   {len(test.sources)} sources, {test.triples} triples; run {from_here(target)}")
        return
    _conclude(execute_od_test(test, target, workers=workers))


def _print_plan(prepared: Prepared, out: Path, workers: int | None) -> None:
    import os

    from roadworthy.engine import local
    from roadworthy.engine.folder import RunFolder

    folder, plan = RunFolder(out), prepared.plan
    done = sum(local.is_done(folder, planned) for planned in plan.cases)
    seconds = local.estimate_seconds(plan, folder, workers or os.cpu_count() or 1)
    data = prepared.data
    counts = f"{len(data):,} images of {len(set(data.groups)):,} objects, {len(data.class_names)} classes"
    typer.echo(f"data      {data.name}: {counts}")
    typer.echo(f"models    {', '.join(prepared.models)}")
    typer.echo(f"stimuli   {len(plan.stimuli)} (undisturbed data among them)")
    typer.echo(f"cases     {len(plan.cases)}, {done} of them done; {plan.image_cases():,} answers in all")
    waiting = {part.recipe.hash for _, part in plan.parts() if not part.loaded}
    untimed = (
        f", without {len(waiting)} artifacts (networks to train and the like) that are built first" if waiting else ""
    )
    typer.echo(f"time      about {_duration(seconds)}{untimed}")
    typer.echo(f"run       {from_here(out)}")


def _duration(seconds: float) -> str:
    """A time that people read.

    >>> _duration(4.2), _duration(95), _duration(7300)
    ('4 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@app.command()
def check(
    model: ModelOption,
    data: DataOption,
    classes: Classes = None,
    range_: Range = None,
    layout: Layout = None,
    outputs: Outputs = None,
    colour: Colour = None,
    size: Size = None,
    device: Device = "auto",
    arch: Arch = None,
    trust: Trust = False,
    sample: Annotated[int, typer.Option(min=1, help="How many images to try.")] = 512,
) -> None:
    """Try a model on a sample: shapes, range, class order, clean accuracy, and what it can be tested for."""
    from roadworthy.api import load_sized
    from roadworthy.core.validation import parse_size
    from roadworthy.data import open_dataset
    from roadworthy.models.check import check_model, open_given

    settings = _model_settings(range=range_, layout=layout, outputs=outputs, colour=colour, arch=arch)
    wanted = parse_size(size)

    base = Path.cwd()  # code of a model may change it

    def rebuild(**changed: Any) -> Any:
        given = {"name": Path(model).stem, "trust": trust, "device": device, "base": base}
        return load_sized(model, wanted, **given, **{**settings, **changed})

    opened, _ = open_given(rebuild)
    dataset = open_dataset(data, classes=classes, size=wanted, fallback_size=opened.input_size, base=base)
    for line in check_model(rebuild, dataset, sample=sample).lines():
        typer.echo(line)


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]


class FailOn(StrEnum):
    """What makes a comparison fail."""

    nothing = "nothing"
    regression = "regression"


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs on the same images; the first is the baseline.")
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="A metric to compare by; may be given several times.")
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Chance of a single false alarm among all conditions of a metric.")
    ] = 0.05,
    margin: Annotated[float, typer.Option(help="The least change that matters.")] = 0.001,
    fail_on: Annotated[FailOn, typer.Option(help="Exit code 1 where there is one.")] = FailOn.nothing,
    out: Annotated[Path | None, typer.Option(help="Write every row as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that shows every change.")] = None,
) -> None:
    """Compare models on the same images, condition by condition: regressions first."""
    from roadworthy.api import compare_runs
    from roadworthy.protocols.comparison import comparison_lines

    table = compare_runs(runs, metrics=metric, alpha=alpha, margin=margin)
    for line in comparison_lines(table, alpha):
        typer.echo(line)
    if out:
        from roadworthy.engine.folder import write_bytes

        write_bytes(out, table.to_csv(index=False).encode())
        typer.echo(f"all rows: {out}")
    if html:
        from roadworthy.report import render_comparison

        title = " and ".join(run.name or str(run) for run in runs)
        _write_text(html, render_comparison(table, title, alpha, margin))
        typer.echo(f"page: {html}")
    if fail_on is FailOn.regression and (table["result"] == "regression").any():
        raise typer.Exit(1)


@app.command()
def verdict(
    run_folder: RunArgument,
    criteria: Annotated[Path | None, typer.Option(help="YAML file of criteria; default: those of the run.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML for a release pipeline.")] = None,
) -> None:
    """Judge a run: exit code 0 pass, 1 fail, 3 inconclusive; 0 without criteria."""
    from roadworthy.runs import open_run

    opened = open_run(run_folder)
    judged = opened.verdict(criteria)
    if junit:
        _write_text(junit, judged.to_junit())
    if criteria is not None:
        opened.save_verdict(judged)
    _print_verdict(judged.to_json())
    raise typer.Exit(judged.exit_code)


def _write_text(path: Path, text: str) -> None:
    from roadworthy.core.errors import InputError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


@app.command()
def report(run_folder: RunArgument) -> None:
    """Write the report of a run anew, from its stored tables."""
    from roadworthy.runs import open_run

    typer.echo(f"report: {from_here(open_run(run_folder).report())}")


@app.command()
def verify(run_folder: RunArgument) -> None:
    """Compare every file of a run with its hash, and recompute its tables from the readouts."""
    from roadworthy.runs import open_run

    opened = open_run(run_folder)
    problems = opened.verify()
    for problem in problems:
        typer.echo(problem)
    if problems:
        typer.echo(f"{run_folder}: {len(problems)} problems")
        raise typer.Exit(1)
    typer.echo(f"{run_folder}: {len(opened.record['files'])} files as recorded; the tables follow from the readouts")


@app.command()
def export(
    study: Annotated[Path, typer.Argument(help="The study file (YAML).")],
    folder: Annotated[Path, typer.Argument(help="A new folder for the images.")],
    workers: Workers = None,
) -> None:
    """Write the disturbed images of a study for an owner who runs the model elsewhere."""
    from roadworthy.api import export_study

    written = export_study(study, folder, workers=workers)
    typer.echo(f"{written:,} images in {folder}; {folder / 'HOWTO.md'} says how to answer")


@app.command()
def preview(
    shift: Annotated[str | None, typer.Argument(help="A shift; all of them where none is named.")] = None,
    data: Annotated[str, typer.Option("--data", help="Your own data; default: the built-in signs.")] = "builtin:signs",
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("preview.png"),
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure similarity (and accuracy with --model) per level.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="With --calibrate: the model whose accuracy to measure.")] = None,
    levels: Annotated[
        Path | None, typer.Option(help="YAML file with your own levels: {1: {factor: 0.1}, ...}.")
    ] = None,
    size: Size = None,
    range_: Range = None,
    trust: Trust = False,
    images: Annotated[int, typer.Option(min=1, max=64, help="Rows of the contact sheet.")] = 4,
    seed: Seed = 0,
) -> None:
    """A contact sheet: levels 1 to 5 side by side."""
    from roadworthy.preview import write_preview

    settings = _model_settings(range=range_)
    for line in write_preview(
        shift,
        data,
        out,
        calibrate=calibrate,
        model=model,
        model_settings=settings,
        levels=levels,
        size=size,
        trust=trust,
        images=images,
        seed=seed,
    ):
        typer.echo(line)


@app.command(name="list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List what there is of a kind."""
    from roadworthy.listing import listing

    for name, summary in listing(kind.value):
        typer.echo(f"{name:<18} {summary}".rstrip())


if __name__ == "__main__":
    main()
