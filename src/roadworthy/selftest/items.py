"""One item of the self-test: something is asked for an answer that is known, and both are compared.

The truth of an item is stored in `truths/<kind>.json`, with where it comes from. Numbers are compared within the
tolerance that is stored with them, on every machine. Bits are compared where the machine type is that of the truths;
elsewhere a summary of them is compared within a tolerance, and the result says which of the two it was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import first_line
from roadworthy.selftest.machine import machine_type

TRUTHS = Path(__file__).with_name("truths")
Status = Literal["pass", "fail", "skipped", "no known answer"]
PASS: Status = "pass"
FAIL: Status = "fail"
SKIPPED: Status = "skipped"
UNKNOWN: Status = "no known answer"
STATUSES: tuple[Status, ...] = (FAIL, SKIPPED, UNKNOWN, PASS)
"""What can come of an item; what a reader should see first comes first."""
NUMBERS, BITS, TOLERANCE = "numbers", "bits", "tolerance"
"""How an item is compared: known numbers, the bits of the same machine type, or a summary within a tolerance."""
SHOWN_DIFFERENCES = 5
EXTRAS = frozenset({"torch"})
"""Modules that an extra of their name installs."""
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Truth:
    """What is known of an item.

    expected   values by name (numbers, texts, lists of them); of bits their summaries
    origin     where these come from, as the end of a sentence: `scikit-learn 1.9.1, roc_auc_score`
    tolerance  how far a number may lie from the expected one, as a share of it where it is above 1; of bits how far
               the summary may lie from the expected one in the mean
    sha256     of the bits, by name; empty where numbers are compared
    machine    the machine type on which bits were recorded
    """

    expected: Values
    origin: str
    tolerance: float
    sha256: Mapping[str, str]
    machine: Mapping[str, str]


@dataclass(frozen=True)
class Item:
    """Something that is asked for a known answer.

    subject    what is asked, as `module:name`; it is looked up when the item runs
    measure    from the subject to its answers by name: numbers, texts and lists of them, or, of bits, arrays
    summarise  from an array of bits to the numbers that are compared on other machines; None where numbers are compared
    needs      the module that it needs beside the core, such as `torch`; empty where the core is enough
    relative   whether the tolerance of a summary is a share of the mean size of what is expected
    """

    kind: str
    name: str
    subject: str
    measure: Callable[[Any], Values]
    summarise: Callable[[NDArray[Any]], list[float]] | None = None
    needs: str = ""
    relative: bool = False

    def run(self) -> ItemResult:
        """Ask and compare; whatever goes wrong is a failed item with a sentence, never an exception."""
        if self.needs and not _is_installed(self.needs):
            what = "extra" if self.needs in EXTRAS else "package"
            return ItemResult(self.kind, self.name, SKIPPED, note=f"needs the {what} {self.needs}")
        truth = truths(self.kind).get(self.name)
        if truth is None:
            return ItemResult(self.kind, self.name, FAIL, note="no truth is stored for it: install Roadworthy again")
        try:
            answers = self.measure(resolve(self.subject))
            compared, differences = self._compared(answers, truth)
        except Exception as error:  # whatever is broken is what the user asks for
            note = f"it could not be computed: {type(error).__name__}: {first_line(error)}"
            return ItemResult(self.kind, self.name, FAIL, origin=truth.origin, note=note)
        status = FAIL if differences else PASS
        unit = " of their mean size" if self.relative else " in the mean"
        return ItemResult(
            self.kind, self.name, status, compared, truth.origin, truth.tolerance, tuple(differences), unit=unit
        )

    def _compared(self, answers: Values, truth: Truth) -> tuple[str, list[Difference]]:
        """How the answers were compared, and where they differ."""
        if self.summarise is None:
            return NUMBERS, [*differences(truth.expected, plain(answers), truth.tolerance)]
        if dict(truth.machine) == machine_type(*truth.machine):
            digests = {name: bits_digest(array) for name, array in answers.items()}
            return BITS, [*differences(truth.sha256, digests, 0.0)]
        summaries = {name: self.summarise(array) for name, array in answers.items()}
        return TOLERANCE, [*_mean_differences(truth.expected, plain(summaries), truth.tolerance, self.relative)]

    def record(self) -> dict[str, Any]:
        """What is stored of the bits of this machine: their summaries and SHA-256."""
        if self.summarise is None:
            raise ValueError(f"{self.kind} {self.name} is compared with numbers: its truth comes from elsewhere")
        answers = self.measure(resolve(self.subject))
        summaries = {name: self.summarise(array) for name, array in answers.items()}
        digests = {name: bits_digest(array) for name, array in answers.items()}
        return {"expected": plain(summaries), "sha256": digests}


@dataclass(frozen=True)
class Difference:
    """One answer that is not as expected."""

    name: str
    expected: str
    got: str


@dataclass(frozen=True)
class ItemResult:
    """What came of an item; `note` says why, where there was nothing to compare."""

    kind: str
    name: str
    status: Status
    compared: str = ""
    origin: str = ""
    tolerance: float = 0.0
    differences: tuple[Difference, ...] = ()
    note: str = ""
    unit: str = ""

    @property
    def comparison(self) -> str:
        """With what it was compared, and how closely, in words."""
        return {
            NUMBERS: f"{self.origin}; within {self.tolerance:g}",
            BITS: f"{self.origin}; bit by bit, as on the same machine type",
            TOLERANCE: f"{self.origin}; another machine type, so within {self.tolerance:g}{self.unit}",
        }.get(self.compared, self.origin)

    def lines(self) -> Iterator[str]:
        """The item in full: what was expected and what came."""
        yield f"{self.kind} {self.name}: {self.status}" + (f" ({self.note})" if self.note else "")
        for difference in self.differences[:SHOWN_DIFFERENCES]:
            yield f"    {difference.name}: expected {difference.expected}, got {difference.got}"
        if len(self.differences) > SHOWN_DIFFERENCES:
            yield f"    and {len(self.differences) - SHOWN_DIFFERENCES} more"
        if self.comparison:
            yield f"    compared with {self.comparison}"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        plain_values = asdict(self)
        del plain_values["unit"]
        return plain_values | {"comparison": self.comparison}


@cache
def truths(kind: str) -> Mapping[str, Truth]:
    """The stored truths of a kind, by the name of the item."""
    path = TRUTHS / f"{kind}.json"
    if not path.exists():
        return {}
    stored = json.loads(path.read_text("utf-8"))
    return {
        name: Truth(
            expected=truth["expected"],
            origin=truth["origin"],
            tolerance=truth["tolerance"],
            sha256=truth.get("sha256", {}),
            machine=stored.get("machine", {}),
        )
        for name, truth in stored["items"].items()
    }


def resolve(subject: str) -> Any:
    """What `module:name` names now."""
    module, _, name = subject.partition(":")
    component: Any = import_module(module)
    for part in name.split("."):
        component = getattr(component, part)
    return component


def bits_digest(array: NDArray[Any]) -> str:
    """The SHA-256 of an array's type, shape and bytes."""
    contiguous = np.ascontiguousarray(array)
    head = f"{contiguous.dtype.str} {contiguous.shape}".encode()
    return hashlib.sha256(head + contiguous.tobytes()).hexdigest()


def plain(value: Any) -> Any:
    """A value as JSON holds it: floats, whole numbers, texts, lists; what is not finite as a text.

    >>> plain({"a": np.array([1.0, np.nan]), "b": (True, np.int64(2))})
    {'a': [1.0, 'nan'], 'b': [True, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def differences(expected: Any, got: Any, tolerance: float, name: str = "") -> Iterator[Difference]:
    """Where plain values differ by more than a tolerance, as a share of the expected number where it is above 1.

    >>> [*differences({"a": [0.5, 2.0]}, {"a": [0.5, 2.1]}, 1e-9)]
    [Difference(name='a, 2', expected='2.0', got='2.1')]
    """
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for key in {**expected, **got}:
            inner = f"{name}, {key}" if name else str(key)
            missing = "nothing"
            yield from differences(expected.get(key, missing), got.get(key, missing), tolerance, inner)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for row, (one, other) in enumerate(zip(expected, got, strict=True), start=1):
            yield from differences(one, other, tolerance, f"{name}, {row}" if name else str(row))
    elif _is_number(expected) and _is_number(got):
        if not abs(got - expected) <= tolerance * max(1.0, abs(expected)):
            yield Difference(name, repr(expected), repr(got))
    elif expected != got:
        yield Difference(name, repr(expected), repr(got))


def _mean_differences(expected: Values, got: Values, tolerance: float, relative: bool) -> Iterator[Difference]:
    """Where summaries, lists of numbers by name, lie too far from the expected ones in the mean."""
    for name in {**expected, **got}:
        known, answer = (np.asarray(values.get(name, []), dtype=np.float64) for values in (expected, got))
        if known.shape != answer.shape:
            yield Difference(name, f"{known.size} numbers", f"{answer.size} numbers")
        else:
            room = tolerance * (float(np.abs(known).mean()) or 1.0) if relative else tolerance
            mean = float(np.abs(known - answer).mean())
            if not mean <= room:
                yield Difference(name, f"a mean difference of at most {room:g}", f"{mean:g}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_installed(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
