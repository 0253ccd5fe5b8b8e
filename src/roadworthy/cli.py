"""The command line. Heavy imports wait until a command needs them, so that `--help` answers at once."""

from __future__ import annotations

import os
import re
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

from roadworthy.core.errors import InputError, RoadworthyError, from_here

if TYPE_CHECKING:
    from roadworthy.api import Prepared, Run
    from roadworthy.engine.progress import ProgressBar
    from roadworthy.verdict import Verdict

app = typer.Typer(
    name="roadworthy",
    help="Is an image classifier fit for the road? Disturb its test data, measure, judge, report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


Engine = StrEnum("Engine", ["local"])
"""Where cases run."""
OnBadImage = StrEnum("OnBadImage", ["error", "skip"])
"""What to do with an image that cannot be read."""
FailOn = StrEnum("FailOn", ["nothing", "regression"])
"""What makes a comparison fail."""
Kind = StrEnum("Kind", ["shifts", "outliers", "monitors", "metrics", "protocols", "models", "data", "suites", "tables"])
"""What `list` can list."""

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
Trust = Annotated[bool, typer.Option("--trust", help="Run Python code named by you or the study, and TorchScript.")]
Unpickle = Annotated[
    bool,
    typer.Option(
        "--unpickle",
        help="Read the weights with pickle, which runs any code they hold; only for files you made yourself.",
    ),
]
ModelVersion = Annotated[
    str | None,
    typer.Option("--model-version", help="For functions and torch: any text that changes when the answers do."),
]
AcceptChance = Annotated[
    bool, typer.Option("--accept-chance", help="Test a model that is no better than chance all the same.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Make everything again, also what the folder holds already.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker threads; never changes a result.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all randomness.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only; the exit code says the rest.")]
StudyArgument = Annotated[Path, typer.Argument(help="The study file (YAML).")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]

STOPPED = 130
"""The exit code after Ctrl-C, which is also what typer makes of it."""
PATIENCE = 3.0
"""Seconds that a command has after Ctrl-C to end by itself."""
UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""What typer raises on an invalid command line; it comes with its own copy of click or uses the one installed."""


def main() -> None:
    """Entry point: errors that a user can act on are one sentence and an exit code, never a traceback."""
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # such an image is an error of ours
    warnings.showwarning = _show_warning  # type: ignore[assignment]
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
        command = error.ctx.command_path if error.ctx else "roadworthy"
        message = _one_line(error.format_message()).replace("Value error, ", "").rstrip(".")
        _say(f"error: {message}; see {command} --help")
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


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Print a warning for users as one line; leave out those of libraries, which are for programmers."""
    if issubclass(category, UserWarning):
        _say(f"warning: {_one_line(str(message))}")


def _version(asked: bool) -> None:
    if asked:
        from roadworthy import __version__

        typer.echo(f"roadworthy {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@cache
def _option_names(command: str) -> set[str]:
    """The options of a command, or of all commands where there is none of that name."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    selected = [commands[command]] if command in commands else commands.values()
    parameters = [parameter for entry in selected for parameter in entry.params]
    return {option for parameter in parameters for option in parameter.opts}


SETTING = re.compile(r"`([a-z_]+)=(True|'[^'`]*'|)`")
"""A setting as messages write it: the Python keyword in backticks, with its value or without."""


OTHER_NAMES = {"version": "model_version"}
"""Keywords of Python whose option has another name."""


def spelled(text: str, command: str = "") -> str:
    """A message with its settings as options of a command, or of any where none is named.

    A setting that is not an option of the command is one in its study file.

    >>> spelled("the images differ in size: give `size='HxW'`", "evaluate")
    'the images differ in size: give --size HxW'
    >>> spelled("pass `trust=True`, or give `size='HxW'`", "run")
    'pass --trust, or give `size: HxW`'
    """
    options = _option_names(command)

    def spell(setting: re.Match[str]) -> str:
        name, value = setting[1], setting[2].strip("'")
        option = f"--{OTHER_NAMES.get(name, name).replace('_', '-')}"
        if option not in options:
            return f"`{name}: {value}`" if value else f"`{name}`"
        return option if value in ("", "True") else f"{option} {value}"

    return SETTING.sub(spell, text)


def _one_line(text: str) -> str:
    """A message as one line that a terminal shows as it is: no control characters.

    >>> _one_line("no file\\x1b[2J\\n  a.png")
    'no file\\\\x1b[2J a.png'
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


@contextmanager
def _watched() -> Iterator[None]:
    """End the process a few seconds after the first Ctrl-C, even where code of a model hangs and does not notice it.

    The interpreter writes the signal to a pipe at once, whatever its main thread does, and a thread waits for that. A
    child process that a model forks writes nothing there.
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
    """Say that the command was stopped and exit at once, without waiting for threads: no file is ever half written."""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    _say(f"{show_cursor}stopped; run the same command again to continue from here")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


def _say(text: str) -> None:
    """Print a line on standard error, its settings as options of the command."""
    _print(text, err=True)


def _print(text: str, *, err: bool = False) -> None:
    """Print a line on standard output (or error), its settings as options of the command."""
    typer.echo(spelled(text, *sys.argv[1:2]).encode("utf-8", "backslashreplace").decode(), err=err)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Test small classifiers on drawn signs; needs nothing from outside."""
    from roadworthy.demo import run_demo, what_is_missing

    if not quiet and (missing := what_is_missing()):
        _say(f"note: {missing}")
    _print_summary(run_demo(out, progress=_progress(quiet)), quiet)


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
    unpickle: Unpickle = False,
    seed: Seed = 0,
    workers: Workers = None,
    on_bad_image: Annotated[
        OnBadImage, typer.Option(help="Stop at a corrupt image, or skip, record and count it.")
    ] = OnBadImage.error,
    name: Annotated[str | None, typer.Option(help="Name of the model in tables and report.")] = None,
    model_version: ModelVersion = None,
    accept_chance: AcceptChance = False,
    fresh: Fresh = False,
    quiet: Quiet = False,
) -> None:
    """Test one classifier under a suite of shifts and write a report."""
    from roadworthy import api

    settings = _model_settings(
        range=range_, layout=layout, outputs=outputs, colour=colour, arch=arch, version=model_version
    )
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
        unpickle=unpickle,
        on_bad_image=on_bad_image.value,
        accept_chance=accept_chance,
        fresh=fresh,
        progress=_progress(quiet),
        **settings,
    )
    _conclude(run, quiet)


def _model_settings(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


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

    verdict = json.loads((run.path / "verdict.json").read_text())
    if not quiet:
        for line in run.headline():
            _print(line)
        _print_criteria(verdict)
    _say_failed(verdict)
    if not quiet:
        typer.echo(f"report: {from_here(run.path / 'report.html')}")
    return str(verdict["status"])


def _print_criteria(verdict: dict[str, Any]) -> None:
    """Print the finding of each criterion, and on standard error the remarks on thresholds."""
    for criterion in verdict["criteria"]:
        _print(f"{criterion['status']:>12}  {criterion['id']}: {criterion['because']}")
    _say_remarks({criterion["id"]: criterion["remark"] for criterion in verdict["criteria"] if criterion["remark"]})


def _say_failed(verdict: dict[str, Any]) -> None:
    """Print what failed on standard error."""
    for failed in verdict["failed"]:
        _say(_one_line(f"failed: {failed['name']}: {failed['reason']}"))


def _say_remarks(remarks: dict[str, str]) -> None:
    """Print the remarks on the thresholds of criteria, by the criterion's id, on standard error."""
    for name, remark in remarks.items():
        _say(_one_line(f"criterion {name}: {remark}"))


def _print_verdict(verdict: Verdict) -> None:
    from roadworthy.verdict.failures import count_failed

    _print_criteria(verdict.to_json())
    _say_failed(verdict.to_json())
    reasons = [] if verdict.findings else ["no criteria given"]
    if verdict.failed:
        reasons.append(f"{count_failed(verdict.failed)} failed, which is never a pass")
    typer.echo(f"verdict: {verdict.status}" + (f" ({'; '.join(reasons)})" if reasons else ""))


@app.command()
def run(
    study: StudyArgument,
    out: OutOption = None,
    engine: Annotated[Engine, typer.Option(help="Where cases run.")] = Engine.local,
    workers: Workers = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with a time estimate; write nothing.")
    ] = False,
    device: Device = "auto",
    trust: Trust = False,
    unpickle: Unpickle = False,
    accept_chance: AcceptChance = False,
    fresh: Fresh = False,
    quiet: Quiet = False,
) -> None:
    """Run a study; resumes by itself."""
    from roadworthy import api
    from roadworthy.study import load_study

    loaded, base = load_study(study)
    target = (out or Path("runs") / loaded.name).absolute()  # code of a model may change the working folder
    progress = _progress(quiet)
    prepared = api.prepare(
        loaded, base=base, trust=trust, unpickle=unpickle, device=device, accept_chance=accept_chance, progress=progress
    )
    if dry_run:
        _print_plan(prepared, target, workers)
        return
    _conclude(api.execute(prepared, target, workers=workers, fresh=fresh, progress=progress), quiet)


def _print_plan(prepared: Prepared, out: Path, workers: int | None) -> None:
    import os

    from roadworthy.engine import local
    from roadworthy.engine.folder import RunFolder
    from roadworthy.engine.progress import duration

    folder, graph = RunFolder(out), prepared.plan.graph()
    done = sum(local.is_done(folder, node.planned) for node in graph.cases.values())
    seconds = local.estimate_seconds(graph, folder, workers or os.cpu_count() or 1)
    for source, bench in prepared.sources.items():
        data = bench.data
        counts = f"{len(data):,} images of {len(set(data.groups)):,} objects, {len(data.class_names)} classes"
        typer.echo(f"data      {f'{source}: ' if source else ''}{data.name}: {counts}")
    typer.echo(f"models    {', '.join(prepared.models)}")
    for protocol in prepared.contexts:
        cases = [planned for planned in prepared.plan.cases if planned.protocol == protocol]
        typer.echo(f"protocol  {protocol}: {len(cases)} cases")
    if prepared.plan.stimuli:
        typer.echo(f"stimuli   {len(prepared.plan.stimuli)} (undisturbed data among them)")
    typer.echo(f"cases     {len(graph.cases)}, {done} of them done; {graph.image_cases():,} answers in all")
    waiting = [node.hash for node in graph.artifacts.values() if not all(part.loaded for part in node.parts)]
    untimed = (
        f", without {len(waiting)} artifacts (networks to train and the like) that are built first" if waiting else ""
    )
    typer.echo(f"time      about {duration(seconds)}{untimed}")
    typer.echo(f"run       {from_here(out)}")
    _say_remarks(prepared.remarks)


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
    unpickle: Unpickle = False,
    sample: Annotated[int, typer.Option(min=1, help="How many images to try.")] = 512,
    model_version: ModelVersion = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 where something wrong was found.")] = False,
) -> None:
    """Try a model on a sample: shapes, range, class order, clean accuracy, and what it can be tested for."""
    from roadworthy import api

    settings = _model_settings(
        range=range_, layout=layout, outputs=outputs, colour=colour, arch=arch, version=model_version
    )
    report = api.check(
        model,
        data,
        sample=sample,
        size=size,
        classes=classes,
        device=device,
        trust=trust,
        unpickle=unpickle,
        **settings,
    )
    for line in report.lines():
        typer.echo(spelled(line, "check"))
    if strict and not report.ok:
        raise typer.Exit(1)


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs on the same images; the first is the baseline.")
    ],
    models: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="BASELINE MODEL",
            help="Any two models: both of a single run, or BASELINE of the first run and MODEL of each later one.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="A metric to compare by; may be given several times.")
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Chance of a single false alarm among all conditions of a metric.")
    ] = 0.05,
    margin: Annotated[
        float,
        typer.Option(help="The least change that matters, in the metric's own unit; a smaller one is no regression."),
    ] = 0.001,
    fail_on: Annotated[FailOn, typer.Option(help="Exit code 1 where there is one.")] = FailOn.nothing,
    all_lines: Annotated[bool, typer.Option("--all", help="List every change, not only the first ten.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write every row as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that shows every change.")] = None,
) -> None:
    """Compare models on the same images, condition by condition: regressions first."""
    from roadworthy.api import compare_runs
    from roadworthy.protocols.comparison import MOST_LINES, comparison_lines

    table = compare_runs(runs, models=models, metrics=metric, alpha=alpha, margin=margin)
    for line in comparison_lines(table, alpha, margin, None if all_lines else MOST_LINES):
        typer.echo(spelled(line, "compare"))
    if out:
        from roadworthy.engine.folder import write_csv

        write_csv(out, table)
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
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make this verdict and its criteria the run's own, in place of its last."),
    ] = False,
) -> None:
    """Judge a run: exit code 0 pass, 1 fail, 3 inconclusive; without criteria 0, or 3 where a case failed."""
    from roadworthy.api import open_run

    if replace and criteria is None:
        raise InputError("--replace puts other criteria in place of the run's own: name them with --criteria")
    opened = open_run(run_folder)
    judged = opened.verdict(criteria)
    if junit:
        _write_text(junit, judged.to_junit())
    if replace:
        opened.save_verdict(judged)
    _print_verdict(judged)
    if criteria is not None and not replace:
        _note_verdict(opened, judged)
    elif opened.has_other_criteria:
        _say("these are not the criteria that the study was run with: the report shows the history of verdicts")
    raise typer.Exit(judged.exit_code)


def _note_verdict(opened: Run, judged: Verdict) -> None:
    """Keep a verdict in the run's history, and say that it is not the run's own."""
    try:
        opened.note_verdict(judged)
    except InputError as error:
        _say(f"this verdict is not recorded in the history of the run: {_one_line(str(error))}")
    if judged.criteria != opened.record.criteria:
        _say("the run's own verdict and criteria stay as they were; --replace puts these in their place")


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


@app.command()
def report(run_folder: RunArgument) -> None:
    """Write the report of a run again, from its stored tables."""
    from roadworthy.api import open_run

    typer.echo(f"report: {from_here(open_run(run_folder).report())}")


@app.command()
def verify(run_folder: RunArgument) -> None:
    """Compare every file of a run with its hash, and recompute its tables from the readouts."""
    from roadworthy.api import open_run

    opened = open_run(run_folder)
    problems = opened.verify()
    for problem in problems:
        typer.echo(problem)
    if problems:
        typer.echo(f"{run_folder}: {len(problems)} problems")
        raise typer.Exit(1)
    typer.echo(f"{run_folder}: {len(opened.folder.hashes())} files as recorded; the tables follow from the readouts")


@app.command()
def export(
    study: StudyArgument,
    folder: Annotated[Path, typer.Argument(help="A new folder for the images.")],
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Write the disturbed images of a study for an owner who runs the model elsewhere."""
    from roadworthy.api import export_study

    image_count = export_study(study, folder, workers=workers, progress=_progress(quiet))
    if not quiet:
        typer.echo(f"{image_count:,} images in {folder}; {folder / 'HOWTO.md'} says how to answer")


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
    unpickle: Unpickle = False,
    images: Annotated[int, typer.Option(min=1, max=64, help="Rows of the contact sheet.")] = 4,
    seed: Seed = 0,
) -> None:
    """A contact sheet: levels 1 to 5 side by side."""
    from roadworthy.preview import write_preview

    for line in write_preview(
        shift,
        data,
        out,
        calibrate=calibrate,
        model=model,
        model_settings=_model_settings(range=range_),
        levels=levels,
        size=size,
        trust=trust,
        unpickle=unpickle,
        images=images,
        seed=seed,
    ):
        typer.echo(line)


@app.command(name="list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List all components of a kind."""
    from roadworthy.listing import listing

    for name, summary in listing(kind.value):
        typer.echo(f"{name:<18} {summary}".rstrip())


if __name__ == "__main__":
    main()
