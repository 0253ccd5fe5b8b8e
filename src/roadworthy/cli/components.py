"""Commands on components: preview a shift, list what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.options import Kind, PluginOption, Range, Seed, Size, Trust, Unpickle, given_settings


@app.command()
def preview(
    shift: Annotated[str | None, typer.Argument(help="A shift; all of them where none is named.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", help="Your own data; default: the built-in signs, or traffic for fog_veil and rainfall."
        ),
    ] = None,
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
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
    images: Annotated[int, typer.Option(min=1, max=64, help="Rows of the contact sheet.")] = 4,
    seed: Seed = 0,
) -> None:
    """A contact sheet: all levels side by side."""
    from roadworthy.plugins import load_given
    from roadworthy.preview import write_preview

    load_given(plugin or (), trust)
    for line in write_preview(
        shift,
        data,
        out,
        calibrate=calibrate,
        model=model,
        model_settings=given_settings(range=range_),
        levels=levels,
        size=size,
        trust=trust,
        unpickle=unpickle,
        images=images,
        seed=seed,
    ):
        typer.echo(line)


@app.command(name="list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """List all components of a kind."""
    from roadworthy.listing import listing_lines
    from roadworthy.plugins import load_given

    load_given(plugin or (), trust)
    for line in listing_lines(kind.value):
        typer.echo(line)
