"""The command line in this process: what it prints, its exit code, and what it leaves on disk."""

from __future__ import annotations

import functools
import re
import shlex
import stat
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from roadworthy import cli
from roadworthy.cli import app, spelled
from roadworthy.core.errors import RoadworthyError

COMMAND = functools.cache(typer.main.get_command)
"""The command line, built once: that takes longer than most mistakes."""


def call(*words: object, code: int = 0) -> str:
    """Run a command in this process; errors come out as `main` would print them."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, RoadworthyError):
        assert result.exception.exit_code == code, result.exception
        return spelled(str(result.exception), str(words[0]))
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder: kind, time of the last write, and bytes or target."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content: Any = None
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = path.readlink()
        changed = None if path.is_dir() else status.st_mtime_ns
        found[str(path.relative_to(folder))] = (status.st_mode, changed, content)
    return found


def call_main(words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command line, without its lines on progress."""
    monkeypatch.setattr(sys, "argv", ["roadworthy", *shlex.split(words)])
    monkeypatch.setattr(typer.main, "get_command", COMMAND)
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as left:
            cli.main()
    assert not warned, [str(warning.message) for warning in warned]
    code = left.value.code
    assert code is None or isinstance(code, int)
    printed, said = capfd.readouterr()
    return code or 0, printed, without_progress(said)


def without_progress(text: str) -> str:
    return re.sub(r"^[a-z_ ]+: .*done in \d+ s\n", "", text, flags=re.MULTILINE)


def check_sentence(text: str, says: str) -> None:
    """One line, which says what it should, and no more than a person reads."""
    assert text.startswith("error: ")
    assert text.count("\n") == 1, text
    assert text.endswith("\n"), text
    assert re.search(says, text), text
    assert "Traceback" not in text
    assert len(text) < 900 or "xxxx" in text, text
