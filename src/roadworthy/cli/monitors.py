"""Commands on monitors: list or evaluate decisions, choose one by its OD-test, write one for deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line
from roadworthy.cli.options import PluginOption, RunArgument, Trust, Unpickle

monitors = typer.Typer(help="Runtime monitors: what their decisions are worth.", no_args_is_help=True)
app.add_typer(monitors, name="monitor")


@monitors.command()
def evaluate(
    table: Annotated[
        Path,
        typer.Argument(help="CSV or Parquet with a row per image: id, ood, label, prediction, and reject or score."),
    ],
    threshold: Annotated[
        float | None, typer.Option(help="The score below which an image is rejected, where there is no reject.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write every table as CSV into this folder.")] = None,
) -> None:
    """What the decisions of monitors are worth, from a table that was made elsewhere."""
    from roadworthy.api import evaluate_decisions
    from roadworthy.engine.folder import write_csv
    from roadworthy.protocols.monitoring.standalone import decision_lines

    tables = evaluate_decisions(table, threshold=threshold)
    for line in decision_lines(tables):
        print_line(line)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name, own in tables.items():
            write_csv(out / f"{name}.csv", own)
        print_line(f"{len(tables)} tables are in {out}")


@monitors.command()
def decisions(
    run_folder: RunArgument,
    out: Annotated[Path, typer.Option(help="The table to write: .csv or .parquet.")],
    model: Annotated[list[str] | None, typer.Option(help="A model; can be repeated. Default: all.")] = None,
    benchmark: Annotated[list[str] | None, typer.Option(help="A benchmark; can be repeated. Default: all.")] = None,
    monitor: Annotated[list[str] | None, typer.Option(help="A monitor; can be repeated. Default: all.")] = None,
    source: Annotated[str | None, typer.Option(help="The source, where the run has several.")] = None,
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """What monitors of a run decided about every image, a row each; `monitor evaluate` takes the table."""
    from roadworthy.api import monitor_decisions
    from roadworthy.core.errors import InputError
    from roadworthy.engine.folder import write_csv, writing

    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"{out} is neither .csv nor .parquet: name the table with one of these endings")
    table = monitor_decisions(
        run_folder,
        models=model,
        benchmarks=benchmark,
        monitors=monitor,
        source=source,
        plugins=plugin or (),
        trust=trust,
    )
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".csv":
            write_csv(out, table)
        else:
            table.to_parquet(out, index=False)
    print_line(f"{len(table):,} decisions are in {out}")


@monitors.command()
def choose(
    run_folder: RunArgument,
    source: Annotated[str | None, typer.Option(help="Ask one source only, by its name in the report.")] = None,
) -> None:
    """What the OD-test of a run says of which monitor to choose, in one paragraph. It only reads."""
    from roadworthy.api import choose_monitor

    print_line(choose_monitor(run_folder, source=source))


@monitors.command()
def export(
    run_folder: RunArgument,
    monitor: Annotated[str, typer.Option(help="The monitor, by its label in the run.")],
    out: Annotated[Path, typer.Option(help="A new folder: guard/, and monitor.onnx with monitor.json.")],
    model: Annotated[str | None, typer.Option(help="The model, where the run has several.")] = None,
    source: Annotated[str | None, typer.Option(help="The source, where the run has several.")] = None,
    include_preprocessing: Annotated[
        bool,
        typer.Option(
            "--include-preprocessing",
            help="The ONNX file takes uint8 images (N, H, W, C) in place of what the model's file takes.",
        ),
    ] = False,
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
) -> None:
    """Write a monitor that a run has tested, with its model and threshold, for deployment."""
    from roadworthy.api import export_monitor

    deployed = export_monitor(
        run_folder,
        monitor,
        out,
        model=model,
        source=source,
        include_preprocessing=include_preprocessing,
        plugins=plugin or (),
        trust=trust,
        unpickle=unpickle,
    )
    for line in deployed.lines():
        print_line(line)
