"""What readers of annotations share: text with line numbers, checked values, errors of one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, RoadworthyError
from roadworthy.core.validation import require_file
from roadworthy.data.images import SUFFIXES


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
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except OSError as error:
        raise InputError(f"cannot read annotations {path}: {error.strerror}") from None


def not_utf8(path: Path) -> InputError:
    """The error for a file that is not UTF-8 text, with the first line that is not."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return malformed(path, number, "this is not UTF-8 text: save the file as UTF-8")
    return malformed(path, None, "this is not UTF-8 text: save the file as UTF-8")


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
    except ValueError:
        raise malformed(path, None, "a number has too many digits") from None


def finite(value: Any, what: str) -> float:
    """A number from an annotation; anything else is a `ValueError` that says what was expected.

    >>> finite("3.5", "x0"), finite(4, "x0")
    (3.5, 4.0)
    """
    try:
        is_number = not isinstance(value, bool) and not (isinstance(value, str) and "_" in value)
        number = float(value) if is_number else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} must be a number, not {value!r}")
    return number


def whole(value: Any, what: str) -> int:
    """A whole number from an annotation; anything else is a `ValueError` that says what was expected.

    >>> whole("640", "width"), whole(480.0, "height")
    (640, 480)
    """
    number = finite(value, what)
    if not number.is_integer():
        raise ValueError(f"{what} must be a whole number, not {value!r}")
    return int(number)


def flag(value: Any, what: str) -> bool:
    """A yes or no from an annotation, written as true and false or 1 and 0; anything else is a `ValueError`.

    >>> flag(1, "iscrowd"), flag(False, "occluded")
    (True, False)
    """
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(f"{what} must be true or false, not {value!r}")
    return bool(value)


def text(value: Any, what: str) -> str:
    """A text from an annotation that is not empty; anything else is a `ValueError` that says what was expected.

    >>> text("car", "category")
    'car'
    """
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be a text, not {value!r}")
    return value


def names_and_values(value: Any, what: str) -> Mapping[str, Any]:
    """An object from a JSON file, with names and values; anything else is a `ValueError` that says what was expected.

    >>> names_and_values({"name": "a.jpg"}, "a frame")
    {'name': 'a.jpg'}
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object with names and values, not {value!r}")
    return value


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
