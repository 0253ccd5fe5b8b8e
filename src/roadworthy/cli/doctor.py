"""Commands on the installation itself: doctor and selftest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line
from roadworthy.core.errors import InputError, from_here


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Say what is installed and what is missing for what, and check that it works; exit code 1 where it does not."""
    from roadworthy.diagnosing import doctor as look

    diagnosis = look()
    if as_json:
        import json

        typer.echo(json.dumps(diagnosis.to_json(), indent=1))
    else:
        for line in diagnosis.lines():
            print_line(line)
    if not diagnosis.is_healthy:
        raise typer.Exit(1)


@app.command()
def selftest(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A kind (metrics) or an item (ece) to ask for; can be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a page (HTML) for the file of an assessment.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every item as JSON.")] = None,
) -> None:
    """Ask every metric, shift, monitor and statistic for known answers; exit code 1 where one answers otherwise."""
    from roadworthy.engine.progress import terminal_progress
    from roadworthy.selftest import self_test

    for path in (out, as_json):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise InputError(f"cannot write {path}: it must be a file in a folder that exists")
    test = self_test(only or (), progress=terminal_progress)
    for line in test.lines():
        print_line(line)
    if out is not None:
        test.write_page(out)
        print_line(f"page: {from_here(out)}")
    if as_json is not None:
        test.write_json(as_json)
        print_line(f"JSON: {from_here(as_json)}")
    if not test.ok:
        raise typer.Exit(1)
