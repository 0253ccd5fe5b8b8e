"""Commands on data: cut crops with one main object each from annotated frames."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.interrupts import STARTS_OVER, after_interrupt
from roadworthy.cli.messages import print_line
from roadworthy.cli.options import Quiet, Workers

data = typer.Typer(help="Data sets made from annotated frames.", no_args_is_help=True)
app.add_typer(data, name="data")


@data.callback()
def _group() -> None:
    """Data sets made from annotated frames."""


@data.command()
def curate(
    format: Annotated[
        str | None,
        typer.Argument(
            metavar="FORMAT", help="bdd100k, cadc, coco, cure_tsd, kitti, nuimages, voc or yolo; or in --settings."
        ),
    ] = None,
    root: Annotated[
        Path | None, typer.Argument(metavar="ROOT", help="The folder with images and annotations; or in --settings.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for images, manifests and tables.")] = None,
    settings: Annotated[Path | None, typer.Option(help="YAML file with `curate: {format: ..., ...}`.")] = None,
    size: Annotated[int | None, typer.Option(help="Side of the crops in pixels; default 256.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness; default 0.")] = None,
    rejected: Annotated[Path | None, typer.Option(help="File with an object id per line: these are left out.")] = None,
    corrected: Annotated[Path | None, typer.Option(help="CSV file id,x0,y0,x1,y1: boxes that replace others.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only; write nothing.")] = False,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Cut crops with one main object each from annotated frames; options win over the settings file."""
    after_interrupt(STARTS_OVER)
    from roadworthy.api import curate_data, no_progress, terminal_progress

    curation = curate_data(
        format,
        root,
        out=out,
        settings=settings,
        dry_run=dry_run,
        workers=workers,
        progress=no_progress if quiet else terminal_progress,
        size=size,
        seed=seed,
        rejected=None if rejected is None else str(rejected),
        corrected=None if corrected is None else str(corrected),
    )
    if not quiet:
        for line in curation.lines():
            print_line(line)
