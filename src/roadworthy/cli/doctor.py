"""The command on the installation itself: doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line


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
