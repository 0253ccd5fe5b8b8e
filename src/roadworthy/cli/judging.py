"""Commands on runs that are there: compare, verdict, operating-point, report, verify and clean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.completion import names_of
from roadworthy.cli.messages import (
    STANDARD_OUTPUT,
    print_criteria,
    print_line,
    print_questions,
    say,
    say_failed,
    write_content,
    write_markdown,
    write_text,
)
from roadworthy.cli.options import FailOn, MarkdownOption, PluginOption, RunArgument, Trust
from roadworthy.core.errors import InputError, from_here, one_line

if TYPE_CHECKING:
    from roadworthy.api import Run
    from roadworthy.verdict import Verdict


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Runs on the same images; the first is the baseline."),
    ],
    models: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="BASELINE MODEL",
            help="Any two models: both of a single run, or BASELINE of the first run and MODEL of each later one.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A metric to compare by; can be repeated.", autocompletion=names_of("metrics")
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Chance of a single false alarm among all conditions of a metric.")
    ] = 0.05,
    margin: Annotated[
        float,
        typer.Option(help="The least change that matters, in the metric's own unit; a smaller one is no regression."),
    ] = 0.001,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit code 1 where there is one, 3 where nothing was compared.")
    ] = FailOn.nothing,
    all_lines: Annotated[bool, typer.Option("--all", help="List every change, not only the first ten.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write every row as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that shows every change.")] = None,
    markdown: MarkdownOption = None,
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """Compare models on the same images, condition by condition: regressions first."""
    from roadworthy.api import compare_runs
    from roadworthy.protocols.comparison import MOST_LINES, comparison_lines

    table = compare_runs(
        runs, models=models, metrics=metric, alpha=alpha, margin=margin, plugins=plugin or (), trust=trust
    )
    to_stderr = markdown == STANDARD_OUTPUT
    lines = [] if to_stderr else comparison_lines(table, alpha, margin, None if all_lines else MOST_LINES)
    for line in lines:
        print_line(line)
    if out:
        from roadworthy.engine.folder import write_csv

        write_csv(out, table)
        print_line(f"all rows: {out}", err=to_stderr)
    if html:
        from roadworthy.report import render_comparison

        title = " and ".join(Path(run).name or run for run in runs)
        write_text(html, render_comparison(table, title, alpha, margin))
        print_line(f"page: {html}", err=to_stderr)
    if markdown:
        from roadworthy.report import comparison_markdown

        write_markdown(markdown, comparison_markdown(table, alpha, margin))
    if fail_on is FailOn.regression:
        _exit_by_results([*table["result"]])


def _exit_by_results(results: list[str]) -> None:
    """End with code 1 where one of the results is a regression, and with 3 where nothing at all was compared."""
    from roadworthy.statistics.paired import NOT_COMPARED, REGRESSION

    if REGRESSION in results:
        raise typer.Exit(1)
    if all(result == NOT_COMPARED for result in results):
        say("inconclusive: nothing was compared, so that no regression can be ruled out (see the reasons above)")
        raise typer.Exit(3)


@app.command()
def verdict(
    run_folder: RunArgument,
    criteria: Annotated[Path | None, typer.Option(help="YAML file of criteria; default: those of the run.")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="The run for criteria with `against: baseline`; default: that of the run."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML for a release pipeline.")] = None,
    markdown: MarkdownOption = None,
    json: Annotated[Path | None, typer.Option(help="Write the verdict as JSON, as verdict.json holds it.")] = None,
    xlsx: Annotated[Path | None, typer.Option(help="Write a matrix of all criteria as a spreadsheet.")] = None,
    argument: Annotated[
        Path | None,
        typer.Option(help="Write claim, argument and evidence: .mmd (Mermaid), .json (vnvspec) or .svg (a picture)."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make this verdict and its criteria the run's own, in place of its last."),
    ] = False,
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """Judge a run: exit code 0 pass, 1 fail, 3 inconclusive; without criteria 0, or 3 where a case failed."""
    from roadworthy.api import open_run

    if replace and criteria is None:
        raise InputError("--replace puts other criteria in place of the run's own: name them with --criteria")
    opened = open_run(run_folder, plugins=plugin or (), trust=trust)
    if replace:
        opened.require_own_code()
    judged = opened.verdict(criteria, baseline=baseline)
    texts = _exported(judged, junit=junit, json_file=json, argument=argument)
    spreadsheet = judged.to_xlsx() if xlsx else b""
    for path, text in texts.items():
        write_text(path, text)
    if xlsx:
        write_content(xlsx, spreadsheet)
    if replace:
        opened.save_verdict(judged)
    if markdown != STANDARD_OUTPUT:
        _print_verdict(judged, opened)
    if markdown:
        write_markdown(markdown, opened.markdown(judged))
    if criteria is not None and not replace:
        _note_verdict(opened, judged)
    else:
        if opened.has_other_criteria:
            say("these are not the criteria that the study was run with: the report shows the history of verdicts")
        for line in opened.history_lines():
            say(line)
    raise typer.Exit(judged.exit_code)


def _exported(judged: Verdict, *, junit: Path | None, json_file: Path | None, argument: Path | None) -> dict[Path, str]:
    """The text of each file that is asked for; nothing is written before all of them are made."""
    from json import dumps

    texts: dict[Path, str] = {}
    if junit:
        texts[junit] = judged.to_junit()
    if json_file:
        texts[json_file] = dumps(judged.to_json(), indent=1) + "\n"
    if argument:
        texts[argument] = judged.argument().written_as(argument)
    return texts


def _note_verdict(opened: Run, judged: Verdict) -> None:
    """Keep a verdict in the run's history, and say that it is not the run's own."""
    try:
        opened.note_verdict(judged)
    except InputError as error:
        say(f"this verdict is not recorded in the history of the run: {one_line(str(error))}")
    if judged.criteria != opened.record.criteria:
        say("the run's own verdict and criteria stay as they were; --replace puts these in their place")


@app.command("operating-point")
def operating_point(
    run_folder: RunArgument,
    cost: Annotated[
        str | None,
        typer.Option(metavar="accepted_wrong=10,rejected_right=1", help="Choose by the least expected cost."),
    ] = None,
    accepted_wrong_at_most: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Choose the lowest threshold whose silent failures are shown to be so few."),
    ] = None,
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """Choose a threshold on the held-out images of a run, and say what follows on its test data. It only reads.

    Exit code 3 where the held-out images are too few to show what is asked for.
    """
    from roadworthy.api import choose_operating_point

    choices = choose_operating_point(
        run_folder, cost=cost, accepted_wrong_at_most=accepted_wrong_at_most, plugins=plugin or (), trust=trust
    )
    for line in (line for choice in choices for line in choice.lines()):
        print_line(line)
    if any(choice.reason for choice in choices):
        raise typer.Exit(3)


@app.command()
def report(run_folder: RunArgument, plugin: PluginOption = None, trust: Trust = False) -> None:
    """Write the report of a run again, from its stored tables."""
    from roadworthy.api import open_run

    opened = open_run(run_folder, plugins=plugin or (), trust=trust)
    print_line(f"report: {from_here(opened.report())}")


@app.command()
def verify(run_folder: RunArgument, plugin: PluginOption = None, trust: Trust = False) -> None:
    """Compare every file of a run with its hash, name missing and foreign ones, recompute tables from readouts."""
    from roadworthy.api import open_run

    opened = open_run(run_folder, plugins=plugin or (), trust=trust)
    problems = opened.verify()
    for problem in problems:
        print_line(problem)
    if problems:
        print_line(f"{run_folder}: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
        raise typer.Exit(1)
    print_line(f"{run_folder}: {len(opened.folder.hashes())} files as recorded; the tables follow from the readouts")


@app.command()
def clean(
    run_folder: RunArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed; change nothing.")] = False,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="Remove files too that somebody else put into the folder.")
    ] = False,
) -> None:
    """Remove from a run what nothing refers to: cases of an earlier study, pictures, what a kill left."""
    from roadworthy.api import open_run

    cleaning = open_run(run_folder).clean(dry_run=dry_run, foreign=foreign)
    done = "would be removed" if dry_run else "removed"
    for leftover in cleaning.removed:
        print_line(f"{done}: {leftover.line()}")
    for leftover in cleaning.kept:
        print_line(f"kept: {leftover.line()}; `foreign=True` removes it")
    count = f"{cleaning.files:,} file{'s' if cleaning.files != 1 else ''}, {cleaning.bytes:,} bytes"
    print_line(f"{run_folder}: {count} {done}" if cleaning.removed else f"{run_folder}: nothing to remove")


def _print_verdict(verdict: Verdict, run: Run) -> None:
    from roadworthy.verdict.failures import count_failed

    print_questions(verdict.to_json())
    print_criteria(verdict.to_json())
    say_failed(run)
    reasons = [] if verdict.findings else ["no criteria given"]
    if verdict.failed:
        reasons.append(f"{count_failed(verdict.failed)} failed, which is never a pass")
    print_line(f"verdict: {verdict.status}" + (f" ({'; '.join(reasons)})" if reasons else ""))
