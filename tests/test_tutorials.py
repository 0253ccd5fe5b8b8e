"""Tutorials are true: what they name exists, and `make tutorials` follows each from its first line to its last."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer
import yaml

from commands import COMMAND
from roadworthy.cli import app
from roadworthy.study import load_study
from tutorials import TUTORIALS, blocks, commands_of_the_shell, follow

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:roadworthy")


def name(page: Path) -> str:
    return page.stem


def test_every_tutorial_is_found() -> None:
    assert len(TUTORIALS) >= 10
    assert all(any(block.kind == "bash" for block in blocks(page.read_text())) for page in TUTORIALS)


@pytest.mark.parametrize("page", TUTORIALS, ids=name)
def test_files_and_commands_of_a_tutorial_are_well_formed(page: Path) -> None:
    """Python compiles, every study is one, every option of a command exists; nothing is run."""
    saved: dict[str, str] = {}
    for block in blocks(page.read_text()):
        assert block.kind in ("python", "yaml", "bash", "text"), block
        if block.kind == "python":
            compile(block.text, block.file_name, "exec")
            saved[block.file_name] = block.text
        elif block.kind == "yaml":
            content = yaml.safe_load(block.text)
            saved[block.file_name] = block.text
            if isinstance(content, dict) and "protocols" in content and "plugins" not in content:
                load_study({**content, "criteria": None})
        elif block.kind == "bash":
            for command, _ in block.commands:
                check_command(shlex.split(command, comments=True), saved)


def check_command(words: list[str], saved: dict[str, str]) -> None:
    """Every option is known, and a Python file that is run was shown before."""
    if words[0] == "python":
        assert words[1] in saved, f"{words[1]} is run before it is shown"
    if words[0] != "roadworthy":
        return
    command, rest = COMMAND(app), words[1:]
    context = typer.Context(command)
    while hasattr(command, "get_command"):
        command = command.get_command(context, rest[0])
        assert command is not None, f"there is no command {rest[0]}"
        rest = rest[1:]
    command.make_context(words[1], list(rest), parent=context)


@pytest.mark.tutorial
@pytest.mark.parametrize("page", TUTORIALS, ids=name)
def test_a_tutorial_can_be_followed(page: Path, tmp_path: Path) -> None:
    environment = commands_of_the_shell(tmp_path / "programs")
    folder = tmp_path / "empty"
    folder.mkdir()
    follow(page, folder, environment)
