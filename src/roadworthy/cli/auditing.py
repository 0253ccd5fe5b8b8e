"""Commands around an approval: bundle a run for an assessor, replay it there, and indicators for the time after it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line, write_text
from roadworthy.cli.options import Device, PluginOption, RunArgument, Trust, Unpickle
from roadworthy.core.errors import InputError, from_here


@app.command()
def bundle(
    run_folder: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The folder of a run, or its address, such as s3://bucket/run."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; default: the run's folder with .rwz.")] = None,
    key: Annotated[
        Path | None, typer.Option(help="Private ed25519 key (PEM) to sign with; needs extra signing.")
    ] = None,
    new_key: Annotated[
        Path | None,
        typer.Option("--new-key", metavar="KEY.pem", help="Make a key first: KEY.pem, and KEY.pub.pem to hand out."),
    ] = None,
    with_artifacts: Annotated[
        bool, typer.Option("--with-artifacts", help="Include networks and other built things of more than 16 MiB.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that is there.")] = False,
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """Write a run that verifies as one archive for an assessor: study, readouts, tables, verdict, report, hashes."""
    if run_folder is None and new_key is None:
        raise InputError("name the run to bundle, or a file for a new key with `new_key=`")
    if key is not None and new_key is not None:
        raise InputError("a new key and one that is there: give `key=` or `new_key=`, not both")
    if new_key is not None:
        from roadworthy.auditing.signing import new_key as make_key

        public = make_key(new_key)
        print_line(f"key: {from_here(new_key)} (keep it to yourself), {from_here(public)} (for who checks bundles)")
        if run_folder is None:
            return
    from roadworthy.api import bundle_run

    options = {"with_artifacts": with_artifacts, "force": force, "plugins": plugin or (), "trust": trust}
    made = bundle_run(run_folder or "", out, key=key or new_key, **options)  # type: ignore[arg-type]
    for line in made.lines():
        print_line(line)


@app.command()
def replay(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The archive that roadworthy bundle wrote.")],
    key: Annotated[
        Path | None, typer.Option(help="Public ed25519 key (PEM) of who must have signed it; never from the bundle.")
    ] = None,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the stored chunks to ask models again; at least one each.")
    ] = 0.01,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="[ROLE=]PATH", help="Data in place of the study's: test (default), train, outliers/NAME."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="A model in place of the study's; can be repeated.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Decides which chunks; default: drawn now, and printed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write what was found: a .json or an .html file.")] = None,
    device: Device = "auto",
    plugin: PluginOption = None,
    trust: Trust = False,
    unpickle: Unpickle = False,
) -> None:
    """Check a bundle: signature, files, tables and verdict anew, and a random share of it asked again.

    Exit code 0 where all that was checked agrees, 1 where something differs, 2 where it cannot be read.
    """
    from roadworthy.api import replay_bundle

    if out is not None and out.suffix not in (".json", ".html"):
        raise InputError(f"{out} is neither .json nor .html: name the report with one of these endings")
    outcome = replay_bundle(
        bundle,
        key=key,
        share=share,
        data=data or (),
        model=model or (),
        seed=seed,
        device=device,
        plugins=plugin or (),
        trust=trust,
        unpickle=unpickle,
    )
    for line in outcome.lines():
        print_line(line)
    if out is not None:
        from roadworthy.core.files import json_bytes

        write_text(out, outcome.to_html() if out.suffix == ".html" else json_bytes(outcome.to_json()).decode())
        print_line(f"report: {from_here(out)}")
    raise typer.Exit(outcome.exit_code)


@app.command()
def indicators(
    run_folder: RunArgument,
    out: Annotated[
        Path | None, typer.Option(help="Folder for JSON, Prometheus rules and a page; default: RUN-indicators.")
    ] = None,
    window: Annotated[str, typer.Option(metavar="TIME", help="How far rules look back, such as 12h, 1d or 2w.")] = "1d",
    level: Annotated[
        float, typer.Option(help="Chance of a false alarm per window while the approved bound holds.")
    ] = 0.001,
    excess: Annotated[
        float,
        typer.Option(help="So many times the tolerated share is to be seen: this decides the size of windows."),
    ] = 2.0,
    power: Annotated[float, typer.Option(help="The chance to see that.")] = 0.95,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    plugin: PluginOption = None,
    trust: Trust = False,
) -> None:
    """Write the approved bounds of a run as indicators for service, with alarm limits (JSON, Prometheus, Markdown)."""
    from roadworthy.api import write_indicators

    rule = {"window": window, "level": level, "excess": excess, "power": power}
    written = write_indicators(run_folder, out, **rule, force=force, plugins=plugin or (), trust=trust)  # type: ignore[arg-type]
    for line in written.lines():
        print_line(line)
