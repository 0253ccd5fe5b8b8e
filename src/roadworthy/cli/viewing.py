"""The command that shows a folder of runs in a browser: serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roadworthy.cli.app import app
from roadworthy.cli.messages import print_line


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that holds runs, at any depth up to five.")],
    host: Annotated[
        str, typer.Option(help="The address to listen at; any but a loopback one lets other machines read the runs.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 takes a free one.")] = 8723,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write the viewer to this new folder, as files for a web server, and end."),
    ] = None,
) -> None:
    """Show the runs below a folder in a browser: list, compare, tables, the images behind a figure, live progress.

    It only reads, runs no code of a run and fetches nothing. Needs the extra serve; Ctrl-C ends it.
    """
    from roadworthy.viewer import serve as show

    def ready(words: str) -> None:
        print_line(words if bundle else f"the runs in {folder}: {words} (Ctrl-C ends it)")

    show(folder, host=host, port=port, open_browser=open_, bundle=bundle, ready=ready)
