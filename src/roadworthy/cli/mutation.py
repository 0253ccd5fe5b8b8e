"""The command on a study itself: does it notice a damaged model?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line
from roadworthy.cli.options import Device, PluginOption, Quiet, Trust, Unpickle, Workers
from roadworthy.core.errors import InputError, from_here


@app.command()
def mutate(
    study: Annotated[Path | None, typer.Argument(metavar="[STUDY]", help="A study file with criteria.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Damage the classifier that comes with the package.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of all runs and of the page; default: runs/mutate-NAME; it is resumed.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to damage; default: the first of the study.")] = None,
    damages: Annotated[
        list[str] | None,
        typer.Option("--damages", metavar="NAME", help="A damage to try, in all its variants; can be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How often each damage that is drawn at random is drawn.")] = 1,
    limit: Annotated[int | None, typer.Option(help="At most so many test images, spread over classes.")] = None,
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
    device: Device = "auto",
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Damage a model on purpose and say which damages the criteria of a study catch: a test of the test.

    Exit code 1 where a damage that costs 5 points of clean accuracy is not caught, or the undamaged copy is.
    """
    from roadworthy.engine.progress import no_progress, terminal_progress
    from roadworthy.mutation import mutate as damage
    from roadworthy.mutation.demo import demo_study

    if (study is None) != demo:
        raise InputError("name a study file, or --demo to damage the classifier of the demo; not both")
    mutation = damage(
        demo_study() if study is None else study,
        out=out,
        model=model,
        damages=damages or (),
        seeds=seeds,
        limit=limit,
        workers=workers,
        plugins=plugin or (),
        trust=trust,
        unpickle=unpickle,
        device=device,
        progress=no_progress if quiet else terminal_progress,
    )
    page, _ = mutation.write()
    if not quiet:
        for line in mutation.lines():
            print_line(line)
        print_line(f"page: {from_here(page)}")
    if not mutation.ok:
        raise typer.Exit(1)
