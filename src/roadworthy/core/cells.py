"""Cells of CSV files that spreadsheets open: what would be run as a formula is marked as text."""

from __future__ import annotations

import io
import re
from typing import Any

FORMULA = "=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""What a formula may begin with; the last four are the wide forms of the first."""
_RISKY = re.compile(f"'*[{FORMULA}]")
_MARKED = re.compile(f"'+[{FORMULA}]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

ENDING = "\r\n"
"""How lines end for the csv writer that fills a `CsvText`: it quotes cells that hold one of these characters."""


class CsvText(io.StringIO):
    """The text of a CSV file, filled line by line by a csv writer with `lineterminator=ENDING`.

    Lines end in a line feed, and a line break of any kind inside a cell is quoted: no cell can begin a line.

    >>> import csv
    >>> text = CsvText()
    >>> _ = csv.writer(text, lineterminator=ENDING).writerow(["a\\rb", "c"])
    >>> text.getvalue()
    '"a\\rb",c\\n'
    """

    def write(self, line: str) -> int:
        """One line, as the writer makes it."""
        return super().write(line.removesuffix(ENDING) + "\n")


def escape_cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe before it.

    Numbers, as text too, stay as they are. Text that holds such an apostrophe already gets another one, so that
    `unescape_cell` always gives back the text.

    >>> [escape_cell(value) for value in ("=1+1", "stop", -0.5, "-0.5", "'=1")]
    ["'=1+1", 'stop', -0.5, '-0.5', "''=1"]
    """
    if isinstance(value, str) and _RISKY.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def unescape_cell(text: str) -> str:
    """The text that `escape_cell` was given; text that it never gives stays as it is.

    >>> [unescape_cell(text) for text in ("'=1+1", "stop", "''=1", "'quoted'")]
    ['=1+1', 'stop', "'=1", "'quoted'"]
    """
    return text[1:] if _MARKED.match(text) else text
