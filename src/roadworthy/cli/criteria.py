"""Commands on acceptance criteria: a new file from a template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.completion import complete_template
from roadworthy.cli.messages import say, write_text
from roadworthy.core.errors import InputError, from_here

criteria = typer.Typer(help="Acceptance criteria.", no_args_is_help=True)
app.add_typer(criteria, name="criteria")


@criteria.callback()
def _group() -> None:
    """Acceptance criteria."""


@criteria.command()
def new(
    template: Annotated[
        str | None,
        typer.Argument(
            metavar="TEMPLATE",
            help="traffic-signs, road-users, ...; see --list.",
            autocompletion=complete_template,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The new file; default: criteria-TEMPLATE.yaml.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the templates; write nothing.")] = False,
) -> None:
    """Write a criteria file, explained line by line; its thresholds are blank, since they are your decision."""
    from roadworthy.protocols.joint_test.templates import template_names, template_summary, template_text

    if list_:
        if template or out:
            raise InputError("--list writes no file: leave out the template and --out")
        for name in template_names():
            typer.echo(f"{name:<18} {template_summary(name)}")
        return
    if template is None:
        raise InputError(f"name a template: {', '.join(template_names())}")
    text, path = template_text(template), out or Path(f"criteria-{template}.yaml")
    if path.exists():
        raise InputError(f"{path} is there already: choose another file with `out=`")
    write_text(path, text)
    typer.echo(f"criteria: {from_here(path)}")
    say("its thresholds are blank, since they are your decision: fill them in, with decided_by and date")
