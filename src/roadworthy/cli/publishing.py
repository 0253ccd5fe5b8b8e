"""The command that hands a run to a tool that keeps experiments: publish."""

from __future__ import annotations

from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line, say
from roadworthy.cli.options import PluginOption, RunArgument, Trust


@app.command()
def publish(
    run_folder: RunArgument,
    mlflow: Annotated[
        str, typer.Option(metavar="URI", help="Tracking URI of MLflow, such as sqlite:///mlflow.db or a server's.")
    ],
    experiment: Annotated[
        str, typer.Option(metavar="NAME", help="The experiment to log to; it is made where there is none.")
    ] = "roadworthy",
    again: Annotated[bool, typer.Option("--again", help="Log it once more where it was logged before.")] = False,
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """Log a run to MLflow (extra mlflow): parameters, figures with bounds, verdict, tables, pictures and report."""
    from roadworthy.api import open_run

    opened = open_run(run_folder, plugins=plugin or (), trust=trust)
    published = opened.log_to_mlflow(mlflow, experiment=experiment, again=again)
    where = f"run {published.run_id} of experiment {published.experiment}"
    if published.existed:
        print_line(f"{run_folder} was logged before, as {where}: nothing was added; `again=True` logs it once more")
        return
    for name, reason in published.left_out.items():
        say(f"not logged: {name} ({reason})")
    print_line(f"logged as {where}: {published.metrics} metrics, {published.files} files in {published.artifacts}")
