"""The command line. Heavy imports wait until a command needs them, so that `--help` answers at once."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

import typer

from roadworthy.cli import (  # noqa: F401 (these add their commands)
    auditing,
    components,
    criteria,
    data,
    doctor,
    judging,
    monitors,
    mutation,
    publishing,
    running,
    viewing,
)
from roadworthy.cli.app import app
from roadworthy.cli.interrupts import STOPPED, leave, was_stopped, watched
from roadworthy.cli.messages import OTHER_NAMES, say, spelled
from roadworthy.cli.supervision import supervised
from roadworthy.core.errors import RoadworthyError, first_line, one_line

__all__ = ["OTHER_NAMES", "app", "main", "spelled"]

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""What typer raises on an invalid command line; it comes with its own copy of click or uses the one installed."""


def main() -> None:
    """Entry point: a command, supervised, so that it never ends like a verdict by accident."""
    supervised(_command)


def _command() -> None:
    """Run the command: errors that a user can act on are one sentence and an exit code, never a traceback."""
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # such an image is an error of ours
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        with watched():
            code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
            if code == STOPPED:
                leave()
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        leave()
    except RoadworthyError as error:
        say(f"error: {one_line(str(error))}")
        sys.exit(error.exit_code)
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "roadworthy"
        message = one_line(error.format_message()).replace("Value error, ", "").rstrip(".")
        say(f"error: {message}; see {command} --help")
        sys.exit(RoadworthyError.exit_code)
    except OSError as error:
        where = "" if error.filename is None else f" ({str(error.filename)!r})"
        say(f"error: {error.strerror or error}{where}")
        sys.exit(RoadworthyError.exit_code)
    except MemoryError:
        say("error: there is not enough memory; try a smaller --size, fewer --workers or less data at once")
        sys.exit(RoadworthyError.exit_code)
    except SystemExit:
        raise
    except BaseException as error:
        if was_stopped():  # an import that is interrupted may raise anything
            leave()
        loaded = sys.modules.get("roadworthy.plugins")
        author, frames = loaded.plugin_behind(error) if loaded is not None else ("", [])
        if author:
            sys.stderr.write("".join(traceback.format_list(frames)))
            say(f"error: {one_line(f'{author} raised {type(error).__name__}: {first_line(error)}')}")
            sys.exit(RoadworthyError.exit_code)
        traceback.print_exc()
        say("error: this is a defect of roadworthy, not of your input; please report it with the lines above")
        sys.exit(70)


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Print a warning for users as one line; leave out those of libraries, which are for programmers."""
    if issubclass(category, UserWarning):
        say(f"warning: {one_line(str(message))}")
