"""Docstrings of this project are plain sentences; this turns them into reStructuredText for the API reference.

A paragraph is one of four things: prose, with code in single backticks; a list of `name   meaning` lines; a formula or
other text that is indented; an example that starts with `>>>`.
"""

from __future__ import annotations

import re
import textwrap

TOKEN = re.compile(r"`(?P<code>[^`]+)`|[\\*|_]|(?<=`)(?=\w)")
NAMED = re.compile(r"^(?P<name>[\w`*][\w`*, ]*?) {2,}(?P<meaning>\S.*)$")


def prose(text: str) -> str:
    """Plain text as reStructuredText: code becomes literal, and nothing else has a meaning of its own.

    >>> print(prose("Use `a_b`s for |x_1| * 2; `c` d"))
    Use ``a_b``\\ s for \\|x\\_1\\| \\* 2; ``c`` d
    """
    return TOKEN.sub(lambda token: f"``{token['code']}``" if token["code"] else f"\\{token[0] or ' '}", text)


def named_lines(lines: list[str]) -> list[str]:
    """A list of `name   meaning` lines, with their indented continuations, as a definition list; empty: it is none.

    >>> named_lines(["size   of the images,", "       in pixels"])
    ['``size``', '    of the images, in pixels']
    """
    rows: list[tuple[str, str]] = []
    for line in lines:
        row = NAMED.match(line)
        if row:
            rows.append((row["name"].replace("`", ""), row["meaning"]))
        elif rows and line.startswith("   "):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        else:
            return []
    return [text for name, meaning in rows for text in (f"``{name}``", f"    {prose(meaning)}")]


def paragraph(lines: list[str]) -> list[str]:
    """One paragraph of a docstring as reStructuredText."""
    if lines[0].startswith(">>>"):
        return lines
    if all(line.startswith(" ") for line in lines):
        return ["::", "", *(f"    {line}" for line in textwrap.dedent("\n".join(lines)).splitlines())]
    named = named_lines(lines)
    if named:
        return named
    start = next((i for i, line in enumerate(lines) if i and named_lines(lines[i:])), None)
    if start is not None:
        return [*paragraph(lines[:start]), "", *named_lines(lines[start:])]
    return [prose(line) for line in textwrap.dedent("\n".join(line.strip() for line in lines)).splitlines()]


def convert(lines: list[str]) -> list[str]:
    """A whole docstring, line by line, as reStructuredText.

    >>> convert(["Half of `x`.", "", "    x / 2"])
    ['Half of ``x``.', '', '::', '', '    x / 2', '']
    """
    converted: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if block.strip():
            converted += [*paragraph(block.splitlines()), ""]
    return converted
