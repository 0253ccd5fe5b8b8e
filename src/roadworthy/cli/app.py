"""The application of the command line; commands add themselves to it."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="roadworthy",
    help="Is an image classifier fit for the road? Disturb its test data, measure, judge, report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
