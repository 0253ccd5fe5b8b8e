"""What the command line prints: one line per message, settings spelled as options of the command."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from roadworthy.cli.app import app
from roadworthy.core.errors import InputError, one_line, printable

if TYPE_CHECKING:
    from roadworthy.api import Run


@cache
def _option_names(command: str) -> set[str]:
    """The options of a command, or of all commands where there is none of that name."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    selected = [commands[command]] if command in commands else [*commands.values()]
    selected += [inner for entry in selected for inner in getattr(entry, "commands", {}).values()]
    parameters = [parameter for entry in selected for parameter in entry.params]
    return {option for parameter in parameters for option in parameter.opts}


STANDARD_OUTPUT = "-"
"""The name of a file that stands for standard output."""

SETTING = re.compile(r"`([a-z_]+)=(True|'[^'`]*'|)`")
"""A setting as messages write it: the Python keyword in backticks, with its value or without."""


OTHER_NAMES = {
    **{"version": "model_version", "plugins": "plugin", "metrics": "metric", "varies": "accept_varying"},
    "headers": "header",
}
"""Keywords of Python whose option has another name."""


def spelled(text: str, command: str = "") -> str:
    """A message with its settings as options of a command, or of any where none is named.

    A setting that is not an option of the command is one in its study file.

    >>> spelled("the images differ in size: give `size='HxW'`", "evaluate")
    'the images differ in size: give --size HxW'
    >>> spelled("pass `trust=True`, or give `size='HxW'`", "run")
    'pass --trust, or give `size: HxW`'
    >>> spelled("declare `boxes='centre relative'`", "check")
    "declare --boxes 'centre relative'"
    >>> spelled("declare `varies=True`", "run")
    'declare `varies: true`'
    """
    options = _option_names(command)

    def spell(setting: re.Match[str]) -> str:
        name, value = setting[1], setting[2].strip("'")
        option = f"--{OTHER_NAMES.get(name, name).replace('_', '-')}"
        if option not in options:
            return f"`{name}: {'true' if value == 'True' else value}`" if value else f"`{name}`"
        quoted = f"'{value}'" if " " in value else value
        return option if value in ("", "True") else f"{option} {quoted}"

    return SETTING.sub(spell, text)


def say(text: str) -> None:
    """Print a line on standard error, its settings as options of the command."""
    print_line(text, err=True)


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line on standard output (or error), its settings as options of the command.

    Names from files stay names: no code of theirs reaches the terminal, and none of them looks like another line.
    """
    typer.echo(printable(spelled(text, *sys.argv[1:2])), err=err)


def print_criteria(verdict: dict[str, Any]) -> None:
    """Print the finding of each criterion with what decides it, and on standard error the remarks on thresholds."""
    for criterion in verdict["criteria"]:
        print_line(f"{criterion['status']:>12}  {criterion['id']}: {criterion['because']}")
        if line := criterion.get("why", {}).get("line"):
            print_line(f"{'':>12}  {one_line(line)}")
    say_remarks({criterion["id"]: criterion["remark"] for criterion in verdict["criteria"] if criterion["remark"]})


def print_questions(verdict: dict[str, Any]) -> None:
    """Print the answer to each question of the study, and to each of several models."""
    for answer in verdict.get("questions", ()):
        print_line(f"{answer['status']:>12}  question {answer['question']}: {answer['because']}")
        if len(answer["models"]) > 1:
            for model, own in answer["models"].items():
                print_line(f"{own['status'] or 'not judged':>12}  question {answer['question']}, {model}")


def write_text(path: Path, text: str) -> None:
    """Write a text file; where that is not possible, the reason in a sentence."""
    write_content(path, text.encode("utf-8"))


def write_content(path: Path, content: bytes) -> None:
    """Write a file; where that is not possible, the reason in a sentence."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def write_markdown(target: str, text: str) -> None:
    """Write Markdown to a file, or print it where that is `-`.

    The file that GitHub names for the summary of a job is appended to: earlier commands of the step may have used it.
    """
    if target == STANDARD_OUTPUT:
        sys.stdout.write(text)  # names in it are printable already
        return
    if target != os.environ.get("GITHUB_STEP_SUMMARY"):
        write_text(Path(target), text)
        return
    try:
        with Path(target).open("a", encoding="utf-8") as summary:
            summary.write(text)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}") from None


def say_failed(run: Run) -> None:
    """Print what of a run failed on standard error."""
    from roadworthy.verdict.failures import failure_lines

    for line in failure_lines(run.record):
        say(one_line(f"failed: {line}"))


def say_remarks(remarks: dict[str, str]) -> None:
    """Print the remarks on the thresholds of criteria, by the criterion's id, on standard error."""
    for name, remark in remarks.items():
        say(one_line(f"criterion {name}: {remark}"))
