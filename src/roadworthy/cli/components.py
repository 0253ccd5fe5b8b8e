"""Commands on components: preview a shift, list what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line
from roadworthy.cli.options import Kind, PluginOption, Range, Seed, ShiftArgument, Size, Trust, Unpickle, given_settings


@app.command()
def preview(
    shift: ShiftArgument = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", help="Your own data; default: the built-in signs, or traffic for fog_veil and rainfall."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default: preview.png, or quiz.html with --quiz.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure similarity (and accuracy with --model) per level.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="With --calibrate: the model whose accuracy to measure.")] = None,
    levels: Annotated[
        Path | None, typer.Option(help="YAML file with your own levels: {1: {factor: 0.1}, ...}.")
    ] = None,
    severity: Annotated[
        list[float] | None, typer.Option(help="A severity to show instead, such as 2.5; may be given several times.")
    ] = None,
    quiz: Annotated[
        Path | None,
        typer.Option(metavar="STUDY", help="Write a page on which a person names the class of images of a study."),
    ] = None,
    level: Annotated[
        int | None, typer.Option(min=1, help="With --quiz: the level of all shifts; default: the study's highest.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="With --quiz: score the answers that the page saved; write nothing.")
    ] = None,
    size: Size = None,
    range_: Range = None,
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
    images: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Rows of the contact sheet (4), or images of each shift in the quiz (10)."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """A contact sheet: all levels side by side; or a quiz for people."""
    of_sheet: dict[str, Any] = {"--data": data, "--calibrate": calibrate, "--model": model, "--levels": levels}
    of_sheet |= {"--severity": severity, "--size": size, "--range": range_, "--unpickle": unpickle}
    chosen = {"SHIFT": shift, "--level": level, "--images": images, "--out": out, "--seed": seed}
    if quiz is None:
        _refuse({"--level": level, "--answers": answers}, "without --quiz")
        from roadworthy.plugins import load_given
        from roadworthy.preview import write_preview

        load_given(plugin or (), trust)
        lines = write_preview(
            shift,
            data,
            out or Path("preview.png"),
            calibrate=calibrate,
            model=model,
            model_settings=given_settings(range=range_),
            levels=levels,
            severities=severity or (),
            size=size,
            trust=trust,
            unpickle=unpickle,
            images=images or 4,
            seed=seed,
        )
    elif answers is None:
        _refuse(of_sheet, "with --quiz, where the study says what is shown")
        from roadworthy.quiz import write_quiz

        page, plugins = out or Path("quiz.html"), plugin or ()
        lines = write_quiz(quiz, page, shift=shift, level=level, images=images, seed=seed, plugins=plugins, trust=trust)
    else:
        _refuse(of_sheet | chosen, "with --answers, which scores all answers and writes nothing")
        from roadworthy.quiz import score_quiz

        lines = score_quiz(quiz, answers, plugins=plugin or (), trust=trust)
    for line in lines:
        print_line(line)


def _refuse(options: dict[str, Any], where: str) -> None:
    """Refuse an option that would be ignored."""
    from roadworthy.core.errors import InputError

    for option, value in options.items():
        if value:
            raise InputError(f"{option} is not used {where}: leave it out")


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
        print_line(line)
