"""What readers of annotations share: text with line numbers, large JSON files, errors of one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, RoadworthyError
from roadworthy.core.validation import require_file
from roadworthy.data.images import SUFFIXES

_BLANK = " \t\r\n"


def malformed(path: Path, line: int | None, problem: object) -> InputError:
    """The error for an annotation that cannot be used: one sentence with its file and line.

    >>> str(malformed(Path("a.txt"), 3, "there are 4 values where 15 are expected"))
    'annotations a.txt, line 3: there are 4 values where 15 are expected'
    """
    where = f"annotations {path}" if line is None else f"annotations {path}, line {line}"
    return InputError(f"{where}: {problem}")


def read_text(path: Path) -> str:
    """The text of an annotation file; one that is absent, or is not UTF-8, is an `InputError`."""
    require_file(path, "annotations")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed(path, None, f"the file is not UTF-8 text: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read annotations {path}: {error.strerror}") from None


def read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and words of every line of a text file that is not blank."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        words = line.split()
        if words:
            yield number, words


def read_json(path: Path) -> Any:
    """The content of a JSON file; the error of a broken one names the line."""
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise malformed(path, error.lineno, f"this is not valid JSON ({error.msg})") from None
    except RecursionError:
        raise malformed(path, None, "the JSON is nested too deeply") from None


def json_elements(path: Path) -> Iterator[tuple[int, Any]]:
    """Every element of the list in a JSON file, with the line where it begins.

    Only one element is in memory as objects at a time, beside the text: files of a gigabyte can be read.
    """
    text, decoder = read_text(path), json.JSONDecoder()
    position = _after_blanks(text, 0)
    line = 1 + text.count("\n", 0, position)
    if text[position : position + 1] != "[":
        raise malformed(path, line, "a list is expected here, which begins with [")
    expected_next = "["
    while True:
        begin = _after_blanks(text, position + 1)
        line += text.count("\n", position, begin)
        if text[begin : begin + 1] == "]" and expected_next == "[":
            break
        try:
            element, end = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            raise malformed(path, error.lineno, f"this is not valid JSON ({error.msg})") from None
        except RecursionError:
            raise malformed(path, line, "the JSON is nested too deeply") from None
        yield line, element
        position = _after_blanks(text, end)
        line += text.count("\n", begin, position)
        expected_next = text[position : position + 1]
        if expected_next == "]":
            begin = position
            break
        if expected_next != ",":
            raise malformed(path, line, "this is not valid JSON (a comma or ] is expected)")
    rest = _after_blanks(text, begin + 1)
    if rest != len(text):
        raise malformed(path, line + text.count("\n", begin, rest), "this is not valid JSON (the list has ended)")


def _after_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANK:
        position += 1
    return position


def finite(value: Any, what: str) -> float:
    """A number from an annotation; anything else is a `ValueError` that says what was expected.

    >>> finite("3.5", "x0"), finite(4, "x0")
    (3.5, 4.0)
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} must be a number, not {value!r}")
    return number


def reason(error: Exception) -> str:
    """Why reading an annotation failed, for `malformed`: a missing key by its name, else the error's own words.

    >>> reason(KeyError("box2d")), reason(ValueError("x0 must be a number"))
    ("there is no 'box2d'", 'x0 must be a number')
    """
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if isinstance(error, RoadworthyError | ValueError):
        return str(error)
    return f"the annotation is not in the form that the format asks for ({error})"


BAD_ANNOTATION = (KeyError, ValueError, TypeError, AttributeError, IndexError, InputError)
"""What reading one annotation raises where it is malformed."""


def require_folder(path: Path, what: str) -> Path:
    """The folder itself; where there is none, an `InputError` that says what is expected there."""
    if not path.is_dir():
        raise InputError(f"there is no folder {path}: {what}")
    return path


def find_image(folder: Path, stem: str) -> Path:
    """The image of that name, without its ending, in a folder; none, or two, is an `InputError`."""
    candidates = [folder / f"{stem}{suffix}" for suffix in sorted(SUFFIXES)]
    candidates += [folder / f"{stem}{suffix.upper()}" for suffix in sorted(SUFFIXES)]
    images = [path for path in candidates if path.is_file()]
    if not images:
        raise InputError(f"there is no image {folder / stem} with an ending such as .png or .jpg: put it there")
    if len(images) > 1:
        raise InputError(f"the images {images[0]} and {images[1].name} have one name: keep one of them")
    return images[0]


def sorted_files(folder: Path, suffix: str) -> Sequence[Path]:
    """All files below a folder that end so, in the order of their paths; hidden ones are left out."""
    return sorted(
        path
        for path in folder.rglob(f"*{suffix}")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
