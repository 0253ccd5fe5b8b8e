"""The elements of lists in a JSON file one by one, however large the file is."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from roadworthy.core.errors import InputError
from roadworthy.core.validation import require_file
from roadworthy.data.curation.reading import malformed, not_utf8

CHUNK = 1 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
_LONGEST_REST = len("e+")
"""How many characters may be left over behind the beginning of a number that is a number too."""
_LONGEST_CUT = 16
"""A value that is cut at the end of the text is found faulty at most so many characters before: two escapes are 12."""
_CUT_TEXT = "Unterminated string"
"""How the error begins that is found at the first character of a text that is cut, however long that is."""


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
    with _opened(path) as text:
        yield from text.elements()
        text.check_end()


def json_sections(path: Path, names: Collection[str]) -> Iterator[tuple[str, int, Any]]:
    """Every element of the lists that the object in a JSON file holds under these names: name, line and element.

    Memory is that of `json_list`. All names must be there; what stands under other names is passed over.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.json")
    ...     characters = path.write_text('{"a": [1,\\n 2], "b": [3], "c": [4]}')
    ...     list(json_sections(path, ("a", "c")))
    [('a', 1, 1), ('a', 2, 2), ('c', 2, 4)]
    """
    with _opened(path) as text:
        yield from text.sections(names)
        text.check_end()


@contextmanager
def _opened(path: Path) -> Iterator[_JsonText]:
    require_file(path, "annotations")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield _JsonText(path, file)
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except OSError as error:
        raise InputError(f"cannot read annotations {path}: {error.strerror}") from None


class _JsonText:
    """A JSON file that is read in chunks: the text in memory, how far it is used, and the line there."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self.file = path, file
        self.text, self.position, self.line, self.ended = "", 0, 1, False
        self.decoder = json.JSONDecoder()

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Line and value of every element of the list that begins here."""
        self.take("[", "a list in [ ]")
        if self.next_character() == "]":
            self.take("]", "]")
            return
        separator = ","
        while separator == ",":
            self.next_character()
            yield self.line, self.value()
            separator = self.take(",]", "a comma or ]")

    def sections(self, names: Collection[str]) -> Iterator[tuple[str, int, Any]]:
        """Name, line and value of every element of the lists with these names in the object that begins here."""
        self.take("{", "an object in { }")
        read = set[str]()
        separator = self.take("}", "}") if self.next_character() == "}" else ","
        while separator == ",":
            if self.next_character() != '"':
                self.refuse("a name in double quotes")
            name = self.value()
            self.take(":", "a colon")
            if name in read:
                raise malformed(self.path, self.line, f"there are two lists {name!r}: keep one of them")
            if name in names:
                read.add(name)
                for line, element in self.elements():
                    yield name, line, element
            else:
                self.next_character()
                self.value()
            separator = self.take(",}", "a comma or }")
        absent = [name for name in names if name not in read]
        if absent:
            raise malformed(self.path, self.line, f"the object ends here without a list {absent[0]!r}")

    def check_end(self) -> None:
        """Refuse anything but blanks up to the end of the file."""
        if self.next_character():
            raise malformed(self.path, self.line, "nothing may follow here, where the JSON has ended")

    def next_character(self) -> str:
        """The next character that is not blank, which is not used up yet; empty at the end of the file."""
        while True:
            blanks = _BLANKS.match(self.text, self.position)
            self.use_up_to(blanks.end() if blanks else self.position)
            if self.position < len(self.text) or self.ended:
                return self.text[self.position : self.position + 1]
            self.fill()

    def take(self, characters: str, expected: str) -> str:
        """Use up the next character, which must be one of these, or else the error says what is expected."""
        character = self.next_character()
        if not character or character not in characters:
            self.refuse(expected)
        self.use_up_to(self.position + 1)
        return character

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error for the next character, which is not what is expected."""
        if self.next_character():
            raise malformed(self.path, self.line, f"{expected} is expected here")
        raise malformed(self.path, self.line, f"the file ends where {expected} is expected")

    def value(self) -> Any:
        """The value at the beginning of the text, once it is certain to be whole.

        A number may be cut so that its beginning is a number too. What cannot be decoded may be cut as well, unless
        the fault lies well before the end of the text.
        """
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                may_be_cut = error.msg.startswith(_CUT_TEXT) or len(self.text) - error.pos <= _LONGEST_CUT
                if self.ended or not may_be_cut:
                    line = self.line + self.text.count("\n", self.position, error.pos)
                    is_cut = error.msg.startswith(_CUT_TEXT) or not self.text[error.pos :].strip()
                    problem = "the file ends before the JSON does" if is_cut else "this is not valid JSON"
                    raise malformed(self.path, line, f"{problem} ({error.msg})") from None
            except RecursionError:
                raise malformed(self.path, self.line, "the JSON is nested too deeply") from None
            except ValueError:
                raise malformed(self.path, self.line, "a number has too many digits") from None
            else:
                if len(self.text) - end > _LONGEST_REST or self.ended:
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
