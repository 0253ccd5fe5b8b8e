"""Commands on acceptance criteria: a new file from a template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.completion import names_of
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
            autocompletion=names_of("templates"),
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The new file; default: criteria-TEMPLATE.yaml.")] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="With a criterion against a baseline run, for runs that name one.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the templates; write nothing.")] = False,
) -> None:
    """Write a criteria file, explained line by line; its thresholds are blank, since they are your decision.

    The template `example` is filled in, to be read and tried; its thresholds are nobody's.
    """
    from roadworthy.protocols.joint_test.templates import is_example, template_names, template_summary, template_text

    if list_:
        if template or out or baseline:
            raise InputError("--list writes no file: leave out the template, --out and --baseline")
        for name in template_names():
            typer.echo(f"{name:<18} {template_summary(name)}")
        return
    if template is None:
        raise InputError(f"name a template: {', '.join(template_names())}")
    text, path = template_text(template, baseline=baseline), out or Path(f"criteria-{template}.yaml")
    if path.exists():
        raise InputError(f"{path} is there already: choose another file with `out=`")
    write_text(path, text)
    typer.echo(f"criteria: {from_here(path)}")
    if is_example(template):
        say("its thresholds are examples that nobody decided on: the report of a run says so")
    else:
        say("its thresholds are blank, since they are your decision: fill them in, with decided_by and date")
