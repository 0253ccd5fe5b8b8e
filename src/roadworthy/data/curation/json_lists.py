"""The elements of a list in a JSON file one by one, however large the file is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.validation import require_file
from roadworthy.data.curation.reading import malformed

CHUNK = 1 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
_LONGEST_CUT = len("e+")


def json_list(path: Path) -> Iterator[tuple[int, Any]]:
    """Every element of the list in a JSON file, with the line where it begins.

    Little more than one element, or a chunk of the file, is in memory at a time, however large the file is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.json")
    ...     characters = path.write_text('[{"a": 1},\\n 2]')
    ...     list(json_list(path))
    [(1, {'a': 1}), (2, 2)]
    """
    require_file(path, "annotations")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _JsonList(path, file).elements()
    except UnicodeDecodeError as error:
        raise malformed(path, None, f"the file is not UTF-8 text: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read annotations {path}: {error.strerror}") from None


class _JsonList:
    """A list in a JSON file that is read in chunks: the text in memory, how far it is used, and the line there."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self.file = path, file
        self.text, self.position, self.line, self.ended = "", 0, 1, False
        self.decoder = json.JSONDecoder()

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Line and value of every element; nothing but blanks may follow the list."""
        if self.next_character() != "[":
            raise malformed(self.path, self.line, "a list is expected here, which begins with [")
        self.use_up_to(self.position + 1)
        separator = "]" if self.next_character() == "]" else ","
        while separator == ",":
            self.next_character()
            line = self.line
            yield line, self.element()
            separator = self.next_character()
            if separator not in ("]", ","):
                raise malformed(self.path, self.line, "this is not valid JSON (a comma or ] is expected)")
            if separator == ",":
                self.use_up_to(self.position + 1)
        self.use_up_to(self.position + 1)
        if self.next_character():
            raise malformed(self.path, self.line, "this is not valid JSON (the list has ended)")

    def next_character(self) -> str:
        """The next character that is not blank, which is not used up yet; empty at the end of the file."""
        while True:
            blanks = _BLANKS.match(self.text, self.position)
            self.use_up_to(blanks.end() if blanks else self.position)
            if self.position < len(self.text) or self.ended:
                return self.text[self.position : self.position + 1]
            self.fill()

    def element(self) -> Any:
        """The value at the beginning of the text, once it is certain to be whole.

        A number may be cut so that its beginning is a number too, with up to `_LONGEST_CUT` characters left over. What
        cannot be decoded may be cut as well, so that a broken file is read to its end.
        """
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                if self.ended:
                    line = self.line + self.text.count("\n", self.position, error.pos)
                    raise malformed(self.path, line, f"this is not valid JSON ({error.msg})") from None
            except RecursionError:
                raise malformed(self.path, self.line, "the JSON is nested too deeply") from None
            else:
                if len(self.text) - end > _LONGEST_CUT or self.ended:
                    self.use_up_to(end)
                    return value
            self.fill()

    def use_up_to(self, position: int) -> None:
        self.line += self.text.count("\n", self.position, position)
        self.position = position

    def fill(self) -> None:
        """Read at least as much again as is not used yet, so that a large element is not looked at too often."""
        unused = self.text[self.position :]
        more = self.file.read(max(CHUNK, len(unused)))
        self.text, self.position, self.ended = unused + more, 0, not more
