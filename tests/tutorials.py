"""Tutorials as a reader follows them: files are saved as their first line says, commands run in a shell, in order.

A block of a tutorial is one of four things:

python, yaml  a file, whose name is the first word of the comment in its first line
bash          commands, a line each; `# exit code 3` behind one says how it ends where that is not 0
text          what the commands before it print; `...` stands for any text
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted(path for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.name != "index.md")
BLOCK = re.compile(r"^(?P<fence>`{3,})(?P<kind>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"^# (?P<name>[\w./-]+\.(?:py|yaml))\b")
EXIT_CODE = re.compile(r"#.*\bexit code (\d+)")


@dataclass(frozen=True)
class Block:
    """One block of code in a page, with its kind (the word after the fence)."""

    kind: str
    text: str

    @property
    def file_name(self) -> str:
        """The name under which a reader saves the block."""
        name = FILE_NAME.match(self.text)
        assert name, f"the first line names no file: {self.text.splitlines()[0]}"
        return name["name"]

    @property
    def commands(self) -> list[tuple[str, int]]:
        """The commands of a block, each with the exit code it ends with."""
        lines = [line for line in self.text.splitlines() if line.strip() and not line.startswith("#")]
        codes = [EXIT_CODE.search(line) for line in lines]
        return [(line, int(code[1]) if code else 0) for line, code in zip(lines, codes, strict=True)]


def blocks(text: str) -> list[Block]:
    """All blocks of a page in their order."""
    return [Block(block["kind"].strip(), block["text"]) for block in BLOCK.finditer(text)]


def shows(printed: str, expected: str) -> bool:
    """Whether every line of `expected` is printed, in this order; white space does not matter, `...` is any text.

    >>> shows("a 1\\nb 2\\nc 3", "a ...\\nc 3"), shows("a\\nb", "b\\na")
    (True, False)
    """
    rows = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in expected.splitlines():
        wanted = re.escape(" ".join(line.split())).replace(re.escape("..."), ".*")
        if wanted and not any(re.fullmatch(wanted, row) for row in rows):
            return False
    return True


def commands_of_the_shell(folder: Path) -> dict[str, str]:
    """An environment in which `python` and `roadworthy` are those of the tests."""
    folder.mkdir()
    for name, words in (("python", ""), ("roadworthy", " -m roadworthy")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        program.chmod(0o755)
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}


def follow(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """Do what a tutorial says, in an empty folder; an `AssertionError` names what does not come out as it says."""
    printed = ""
    for block in blocks(page.read_text()):
        if block.kind in ("python", "yaml"):
            target = folder / block.file_name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
        elif block.kind == "text":
            assert shows(printed, block.text), f"{page.name} promises\n{block.text}\nand this was printed:\n{printed}"
        else:
            assert block.kind == "bash", f"{page.name} has a block of the kind {block.kind!r}"
            printed = ""
            for command, code in block.commands:
                done = subprocess.run(
                    command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
                )
                assert done.returncode == code, (page.name, command, done.returncode, done.stdout, done.stderr[-3000:])
                printed += done.stdout + done.stderr
