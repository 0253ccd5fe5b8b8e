"""Commands on monitors: evaluate decisions that were made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app

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
        typer.echo(line)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name, own in tables.items():
            write_csv(out / f"{name}.csv", own)
        typer.echo(f"{len(tables)} tables are in {out}")
