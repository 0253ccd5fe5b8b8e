"""Stored answers as a model: Parquet or CSV, keyed by stimulus and image id, for models that run elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from roadworthy.core.cells import unescape_cell
from roadworthy.core.errors import InputError
from roadworthy.core.files import files_below
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.parquet import parquet_blocks, parquet_schema
from roadworthy.core.roles import Model
from roadworthy.core.types import UNDISTURBED, Batch, Prediction
from roadworthy.core.validation import check_no_nul
from roadworthy.models.boxes import BoxForm, parse_box_form
from roadworthy.models.classes import read_class_names
from roadworthy.models.outputs import OUTPUTS, SUM_TOLERANCE, are_probabilities, prediction, softmax
from roadworthy.models.preprocess import parse_choice

SUFFIXES = (".csv", ".parquet")
UNDISTURBED_START = f"{UNDISTURBED}-0-"
KEYS = ("stimulus", "id")
SOURCE = "source"
"""A column of the manifest of several sources, no class where answers keep it."""
PANDAS_INDEX = "__index_level_"
SHOWN = 3
CSV_BLOCK = 16 * 2**20
MOST_COLUMNS = 50_000
CSV_PARSING = pa.csv.ParseOptions(newlines_in_values=True)

BOXES = {"boxes": "box", "box_variance": "variance"}
"""Answers in boxes by the name of their list column, with how their numbered columns begin."""
BOX_SIDES = 4
AS_STORED = (BoxForm(), BoxForm(variance="variance"))
"""The forms in which stored boxes are served as they are."""

Floats = NDArray[np.float32]
Columns = Mapping[str, pa.DataType | None]


class StoredPredictions(Model):
    """Answers that a model gave elsewhere: a Parquet or CSV file, or a folder of them.

    Columns: `id`; `stimulus` (where absent, every row answers undisturbed data); and the answer in one of these forms:
    one column per class under its name, `p0` to `pK-1`, `logit0` to `logitK-1`, or (Parquet) a list column
    `probabilities` and/or `logits`. Class names are all other columns but `source`, or those that `classes` names. A
    model that says where the object is has `box0` to `box3` (x0, y0, x1, y1) and `variance0` to `variance3`, or lists
    `boxes` and `box_variance`, beside the classes or alone.

    outputs  of columns under class names: `auto` finds out whether all rows are probabilities or none is
    boxes    how boxes are written, where that is not `corners pixels` of the exported image (see `BoxForm`); the
             columns of their variance hold what it says of that, by default `variance`
    """

    concurrent = True

    def __init__(
        self,
        path: str | Path,
        *,
        classes: str | Path | Sequence[str] | None = None,
        outputs: str = "auto",
        boxes: str | None = None,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        self.path = base / path
        self.name = name or self.path.stem
        parse_choice("outputs", outputs, OUTPUTS)
        files = answer_files(self.path)
        given = read_class_names(classes, base)
        form = _Form.of(answer_columns(files[0]), given, files[0])
        self._ignored = [column for column in answer_columns(files[0]) if column not in form.used]
        self._keyed_by_stimulus = "stimulus" in form.keys
        self._index = AnswerIndex(self.path)
        self._parts: dict[str, list[Floats]] = {kind: [] for kind in form.answers}
        for file in files:
            other = _Form.of(answer_columns(file), given, file)
            if other.signature != form.signature:
                raise InputError(f"{file} has other columns than {files[0]}: all files of a folder need the same ones")
            for table in answer_tables(file, form.used):
                if any(table[key].null_count for key in form.keys):
                    raise InputError(f"{file} has rows without {' or '.join(form.keys)}")
                stimuli = table["stimulus"] if self._keyed_by_stimulus else pa.repeat("", table.num_rows)
                self._index.add(stimuli, table["id"])
                for kind, columns in form.answers.items():
                    self._parts[kind].append(_matrix(table, columns, file))
        self._offsets = np.cumsum([0, *(len(part) for part in next(iter(self._parts.values())))])
        self._index.finish()
        if not self._index.rows:
            raise InputError(f"{self.path} holds no answers")
        self._settle(outputs)
        self.box_form = self._find_box_form(boxes)
        self.class_names = given or form.class_names
        self.capabilities = frozenset({*self._parts, *(["probabilities"] if self.num_classes else [])})
        settings: dict[str, Any] = {"answers": sorted(self._parts), "classes": self.class_names}
        if self.box_form is not None and self.box_form not in AS_STORED:
            settings["boxes"] = str(self.box_form)
        self._fingerprint = digest({"kind": "predictions", "files": [digest_file(f) for f in files], **settings})

    def _settle(self, outputs: str) -> None:
        """Name the answers `probabilities` or `logits`, and check that every row is one."""
        widths = {part.shape[1] for kind, parts in self._parts.items() if kind not in BOXES for part in parts}
        if widths and (len(widths) != 1 or min(widths) < 2):
            raise InputError(
                f"{self.path} holds answers of {sorted(widths)} classes: all rows need the same, at least two"
            )
        self.num_classes = next(iter(widths), 0)
        for kind in set(self._parts) & set(BOXES):
            if any(part.shape[1] != BOX_SIDES for part in self._parts[kind]):
                raise InputError(f"{self.path}: {kind} have {BOX_SIDES} numbers each: x0, y0, x1, y1")
        for parts in self._parts.values():
            bad = np.concatenate([~np.isfinite(part).all(axis=1) for part in parts])
            if bad.any():
                raise InputError(f"{self.path} holds NaN, infinity or gaps in {self._some(np.flatnonzero(bad))}")
        if "unnamed" in self._parts:
            self._parts = {self._name_answers(outputs): self._parts.pop("unnamed"), **self._parts}
        elif outputs not in ("auto", *self._parts):
            raise InputError(f"{self.path} holds {' and '.join(self._parts)} by its column names, not {outputs}")
        bad = self._rows_without_sum_one(self._parts.get("probabilities", []))
        if len(bad):
            raise InputError(
                f"{self.path} holds logits where probabilities were declared: negative or not summing to 1 are "
                f"{self._some(bad)}"
            )
        if {"probabilities", "logits"} <= self._parts.keys():
            pairs = zip(self._parts["logits"], self._parts["probabilities"], strict=True)
            apart = np.concatenate([np.abs(softmax(own) - other).max(axis=1) > SUM_TOLERANCE for own, other in pairs])
            if apart.any():
                raise InputError(
                    f"{self.path} holds logits that are not those of its probabilities in "
                    f"{self._some(np.flatnonzero(apart))}: leave out one of the two"
                )

    def _find_box_form(self, declared: str | None) -> BoxForm | None:
        """How the stored boxes are written, and checks that their variance can be one; None where there are none."""
        if "boxes" not in self._parts:
            if declared is not None or "box_variance" in self._parts:
                raise InputError(f"{self.path} holds no boxes: give them as the columns `box0` to `box3`, or `boxes`")
            return None
        form = BoxForm() if declared is None else parse_box_form(declared)
        if "box_variance" not in self._parts:
            if form.variance != "none":
                raise InputError(f"{self.path} holds no {form.variance} of boxes: declare `boxes={_place(form)!r}`")
            return form
        form = replace(form, variance="variance") if form.variance == "none" else form
        bad = np.concatenate([(part < 0).any(axis=1) for part in self._parts["box_variance"]])
        if form.variance != "log_variance" and bad.any():
            raise InputError(
                f"{self.path} holds a negative {form.variance} of boxes in {self._some(np.flatnonzero(bad))}: if it is "
                f"a logarithm, declare `boxes={_place(form) + ' log_variance'!r}`"
            )
        return form

    def _name_answers(self, outputs: str) -> str:
        """`probabilities` or `logits`, for columns under class names."""
        bad = self._rows_without_sum_one(self._parts["unnamed"])
        if outputs == "logits" and not len(bad):
            raise InputError(f"{self.path} holds probabilities where logits were declared: every row sums to 1")
        if outputs != "auto":
            return outputs
        if 0 < len(bad) < self._index.rows:
            raise InputError(
                f"{self.path}: most rows may be probabilities, but negative or not summing to 1 are {self._some(bad)}: "
                "correct them, or declare `outputs='logits'`"
            )
        return "logits" if len(bad) else "probabilities"

    @staticmethod
    def _rows_without_sum_one(parts: Sequence[Floats]) -> NDArray[np.intp]:
        return np.flatnonzero(np.concatenate([~are_probabilities(part) for part in parts] or [np.zeros(0, np.bool_)]))

    def fingerprint(self) -> str:
        """Hash of the files and of how they are read."""
        return self._fingerprint

    def predict(self, batch: Batch) -> Prediction:
        """Look the answers up; what is missing is an error that counts and names it."""
        stimulus = self._stimulus(batch.stimulus)
        rows = self._index.find(stimulus, batch.ids)
        if (rows < 0).any():
            missing = self._lacking(batch.stimulus, batch.ids)
            raise InputError(self._missing({batch.stimulus or stimulus: missing}, len(batch)))
        answers = {kind: self._take(kind, rows) for kind in self._parts}
        boxes = {kind: answers.pop(kind) for kind in BOXES if kind in answers}
        if self.box_form is not None and self.box_form not in AS_STORED:
            size = (batch.images.shape[1], batch.images.shape[2])
            read, variance = self.box_form.read(np.concatenate([*boxes.values()], axis=1), size, size)
            boxes = {"boxes": read} if variance is None else {"boxes": read, "box_variance": variance}
        if not answers:
            return Prediction(boxes=boxes.get("boxes"), box_variance=boxes.get("box_variance"))
        kind = "probabilities" if "probabilities" in answers else "logits"
        return prediction(answers.pop(kind), kind, answers.get("logits")).changed(**boxes)

    def check_complete(self, expected: Mapping[str, Sequence[str]]) -> int:
        """Before anything runs: every (stimulus key -> ids) that will be asked for must be there.

        Raises one error that counts all missing answers; returns how many stored rows will not be used.
        """
        missing = {key: lacking for key, ids in expected.items() if (lacking := self._lacking(key, ids))}
        if missing:
            raise InputError(self._missing(missing, sum(map(len, expected.values()))))
        return len(self.unused(expected))

    def unused(self, expected: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
        """The stored (stimulus, id) that nothing in `expected` asks for."""
        used = np.zeros(self._index.rows, np.bool_)
        for stimulus, ids in expected.items():
            rows = self._index.find(self._stimulus(stimulus), ids)
            used[rows[rows >= 0]] = True
        return [self._index.name(int(row)) for row in np.flatnonzero(~used)]

    def _lacking(self, stimulus: str, ids: Sequence[str]) -> list[str]:
        rows = self._index.find(self._stimulus(stimulus), ids)
        return [image for image, row in zip(ids, rows, strict=True) if row < 0]

    def stimuli(self) -> tuple[str, ...]:
        """The stimulus keys that answers are stored for; one empty key where the files have no such column."""
        return tuple(self._index.stimulus_codes)

    def describe(self) -> dict[str, Any]:
        """What is in use, for people."""
        shown = "undisturbed data" if not self._keyed_by_stimulus else f"{len(self.stimuli())} stimuli"
        return {
            "kind": "predictions",
            "outputs": " and ".join(sorted(self._parts)),
            **({} if self.box_form is None else {"boxes": str(self.box_form)}),
            "input": f"{self._index.rows} stored answers to {shown}",
            "notes": (f"ignores the columns {', '.join(self._ignored)}",) if self._ignored else (),
        }

    def _stimulus(self, asked: str) -> str:
        """The stored key that a batch's key means: files without a stimulus column answer undisturbed data."""
        undisturbed = not asked or asked.startswith(UNDISTURBED_START)
        if not self._keyed_by_stimulus:
            return "" if undisturbed else asked
        if asked:
            return asked
        stored = [key for key in self.stimuli() if key.startswith(UNDISTURBED_START)]
        if len(stored) != 1:
            raise InputError(
                f"{self.path} holds answers to {len(stored)} sets of undisturbed data, where one was expected"
            )
        return stored[0]

    def _missing(self, missing: Mapping[str, Sequence[str]], expected: int) -> str:
        """One sentence on what is missing, and why, where that is known."""
        count = sum(map(len, missing.values()))
        first = [(stimulus, image) for stimulus, ids in missing.items() for image in ids[:SHOWN]][:SHOWN]
        named = ", ".join(f"({stimulus}, {image})" for stimulus, image in first)
        text = f"{self.path} lacks {count} of {expected} answers: {named}{', ...' if count > len(first) else ''}"
        if not self._keyed_by_stimulus:
            return text + ("" if "" in map(self._stimulus, missing) else "; it has no column 'stimulus'")
        stored = set(self.stimuli())
        for stimulus in missing:
            same = [key for key in stored - {stimulus} if key.rsplit("-", 1)[0] == stimulus.rsplit("-", 1)[0]]
            if stimulus not in stored and same:
                return f"{text}; it holds {min(same)}, which belongs to other data, seed, parameters or code"
        return text

    def _some(self, rows: NDArray[np.intp]) -> str:
        return f"{len(rows)} of {self._index.rows} rows: {self._index.some(rows)}"

    def _take(self, kind: str, rows: NDArray[np.int64]) -> Floats:
        parts = self._parts[kind]
        out = np.empty((len(rows), parts[0].shape[1]), np.float32)
        owner = np.searchsorted(self._offsets, rows, side="right") - 1
        for part in np.unique(owner):
            here = owner == part
            out[here] = parts[part][rows[here] - self._offsets[part]]
        return out


def _place(form: BoxForm) -> str:
    """A form as text, without what it says of the variance."""
    return str(replace(form, variance="none"))


@dataclass(frozen=True)
class _Form:
    """Which columns hold what. `answers` maps `probabilities`, `logits` or `unnamed` to its columns, in class order."""

    keys: tuple[str, ...]
    answers: dict[str, list[str]]
    class_names: tuple[str, ...] | None = None

    @property
    def used(self) -> list[str]:
        """The columns that are read: the keys, then the answers."""
        return [*self.keys, *(column for columns in self.answers.values() for column in columns)]

    @property
    def signature(self) -> tuple[Any, ...]:
        """Equal for files that can be read together; columns may be in another order."""
        return self.keys, {kind: frozenset(columns) for kind, columns in self.answers.items()}

    @classmethod
    def of(cls, columns: Columns, classes: tuple[str, ...] | None, file: Path) -> _Form:
        """The form of a file with these columns (types are None in CSV)."""
        if "id" not in columns:
            raise InputError(f"{file} has no column 'id'; its columns are {', '.join(list(columns)[:8])}")
        keys = tuple(key for key in KEYS if key in columns)
        boxes = {kind: names for kind, prefix in BOXES.items() if (names := _of_boxes(columns, kind, prefix))}
        known = {*KEYS, SOURCE, *(name for names in boxes.values() for name in names)} - set(classes or ())
        rest = [column for column in columns if column not in known and not column.startswith(PANDAS_INDEX)]
        form = cls._classes(keys, columns, rest, classes, file) if rest or not boxes else cls(keys, {})
        form.answers.update(boxes)
        return form

    @classmethod
    def _classes(
        cls, keys: tuple[str, ...], columns: Columns, rest: list[str], classes: tuple[str, ...] | None, file: Path
    ) -> _Form:
        """The form of the answers in classes."""
        if classes is not None and set(classes) <= set(rest):
            return cls(keys, {"unnamed": list(classes)}, classes)
        lists = [column for column in ("probabilities", "logits") if _is_list(columns.get(column))]
        if lists:
            return cls(keys, {column: [column] for column in lists})
        prefixes = {"probabilities": "p", "logits": "logit"}
        answers = {kind: names for kind, prefix in prefixes.items() if (names := _numbered(rest, prefix))}
        if answers:
            return cls(keys, answers)
        if classes is not None:
            lacking = [name for name in classes if name not in rest]
            raise InputError(f"{file} has no column for the class {lacking[0]!r} ({len(lacking)} classes lack one)")
        return cls(keys, {"unnamed": rest}, tuple(rest))


def _of_boxes(columns: Columns, kind: str, prefix: str) -> list[str]:
    """The columns that hold boxes, or their variance: a list column, or four numbered ones."""
    if _is_list(columns.get(kind)):
        return [kind]
    numbered = [f"{prefix}{side}" for side in range(BOX_SIDES)]
    return numbered if all(column in columns for column in numbered) else []


def _is_list(kind: pa.DataType | None) -> bool:
    return kind is not None and bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _numbered(columns: Iterable[str], prefix: str) -> list[str]:
    """`p0, p1, ...` among the columns, in the order of their numbers; none where a number is missing."""
    by_number = {int(m[1]): column for column in columns if (m := re.fullmatch(prefix + r"(\d+)", column))}
    numbers = sorted(by_number)
    return [by_number[number] for number in numbers] if numbers == list(range(len(numbers))) else []


class AnswerIndex:
    """(stimulus, id) to row: both are coded as numbers once, then one sorted key per row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stimulus_codes: dict[str, int] = {}
        self._id_codes: dict[str, int] = {}
        self._pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self.rows = 0

    def add(self, stimuli: Any, ids: Any) -> None:
        """Add rows by the stimulus and the id of each."""
        self._pairs.append((_coded(stimuli, self.stimulus_codes), _coded(ids, self._id_codes)))
        self.rows += len(ids)

    def finish(self) -> None:
        """Sort the keys; a key that occurs twice is an error."""
        stimuli, ids = (np.concatenate([pair[i] for pair in self._pairs] or [np.empty(0, np.int64)]) for i in (0, 1))
        self._pairs.clear()
        self._keys = stimuli * max(1, len(self._id_codes)) + ids
        self._order = np.argsort(self._keys, kind="stable")
        self._sorted = self._keys[self._order]
        self._stimulus_names, self._id_names = list(self.stimulus_codes), list(self._id_codes)
        again = np.flatnonzero(self._sorted[1:] == self._sorted[:-1]) + 1
        if len(again):
            named = self.some(self._order[again])
            raise InputError(f"{self._path} answers {len(again)} images more than once: {named}")

    def find(self, stimulus: str, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each id, -1 where there is none."""
        code = self.stimulus_codes.get(stimulus)
        codes = np.fromiter((self._id_codes.get(image, -1) for image in ids), np.int64, len(ids))
        if code is None or not self.rows:
            return np.full(len(ids), -1, np.int64)
        keys = np.where(codes < 0, -1, code * len(self._id_codes) + codes)
        positions = np.minimum(np.searchsorted(self._sorted, keys), self.rows - 1)
        return np.where(self._sorted[positions] == keys, self._order[positions], -1)

    def name(self, row: int) -> tuple[str, str]:
        """The stimulus and the id of a row."""
        stimulus, image = divmod(int(self._keys[row]), len(self._id_codes))
        return self._stimulus_names[stimulus], self._id_names[image]

    def some(self, rows: NDArray[np.intp]) -> str:
        """The first of these rows by name."""
        named = ", ".join(str(self.name(int(row))) for row in rows[:SHOWN]).replace("'", "")
        return named + (", ..." if len(rows) > SHOWN else "")


def _coded(values: Any, codes: dict[str, int]) -> NDArray[np.int64]:
    """Each text as its number in `codes`, which grows as needed; a text may be marked as in an exported manifest."""
    encoded = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    try:
        encoded = encoded.cast(pa.string()).dictionary_encode()
    except pa.ArrowException as error:
        raise InputError(f"a stimulus and an id are texts, not {values.type}: {error}") from None
    texts = map(unescape_cell, encoded.dictionary.to_pylist())
    translate = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)
    return np.asarray(translate[encoded.indices.to_numpy()])


def answer_files(path: Path, what: str = "stored predictions") -> list[Path]:
    """The CSV and Parquet files at a path, which may be a folder; none, or a file of another kind, is an error."""
    if path.is_dir():
        names = files_below(path, f"a folder of {what}")
        files = sorted(file for file in names if file.suffix.lower() in SUFFIXES and file.is_file())
        if not files:
            raise InputError(f"the folder {path} holds no .csv or .parquet file of {what}")
        return files
    if not path.is_file():
        raise InputError(f"there are no {what} at {path}")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{what} are .csv or .parquet files (or a folder of them), not {path}")
    return [path]


def answer_columns(file: Path) -> dict[str, pa.DataType | None]:
    """The columns of a file with their types (None in CSV, where all is text)."""
    try:
        if file.suffix.lower() == ".parquet":
            schema = parquet_schema(file)
            names, types = schema.names, [field.type for field in schema]
        else:
            _check_width(file)
            with pa.csv.open_csv(file, pa.csv.ReadOptions(block_size=CSV_BLOCK), CSV_PARSING) as reader:
                names, types = reader.schema.names, [None] * len(reader.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"cannot read {file}: {error}") from None
    check_no_nul("column", names)
    twice = {name for name, count in Counter(names).items() if count > 1}
    if twice:
        raise InputError(f"{file} has two columns named {min(twice)!r}")
    return dict(zip(names, types, strict=True))


def _check_width(file: Path) -> None:
    """Refuse a CSV file with more columns than there are classes anywhere: reading them would take hours."""
    with file.open("rb") as content:
        columns = content.readline(CSV_BLOCK).count(b",") + 1
    if columns > MOST_COLUMNS:
        raise InputError(
            f"{file} has {columns:,} columns; at most {MOST_COLUMNS:,} are read from CSV: use Parquet lists"
        )


def answer_tables(file: Path, columns: Sequence[str], answers: str = "one per class") -> Iterator[pa.Table]:
    """Some columns of a file, block by block: keys as texts, others, which `answers` describes, as numbers."""
    try:
        if file.suffix.lower() == ".parquet":
            yield from map(pa.table, parquet_blocks(file, columns))
            return
        types = {column: pa.string() if column in KEYS else pa.float32() for column in columns}
        convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(columns))
        with pa.csv.open_csv(file, pa.csv.ReadOptions(block_size=CSV_BLOCK), CSV_PARSING, convert) as reader:
            yield from (pa.table(batch) for batch in reader if batch.num_rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"cannot read {file} (columns are 'stimulus', 'id' and {answers}): {error}") from None


def _matrix(table: pa.Table, columns: Sequence[str], file: Path) -> Floats:
    """(N, K) float32 of one column per class, or of one list column."""
    count = table.num_rows
    try:
        if len(columns) == 1 and _is_list(table.schema.field(columns[0]).type):
            lists = table[columns[0]].combine_chunks()
            values = lists.flatten().cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
            if lists.null_count or len(pa.compute.list_value_length(lists).unique()) != 1:
                raise InputError(f"{file}: every row of {columns[0]!r} needs the same number of classes")
            return np.ascontiguousarray(values, np.float32).reshape(count, -1)
        out = np.empty((count, len(columns)), np.float32)
        for index, column in enumerate(columns):
            out[:, index] = table[column].cast(pa.float32(), safe=False).to_numpy()
        return out
    except pa.ArrowException:
        kinds = {column: table.schema.field(column).type for column in columns}
        bad = next(c for c, k in kinds.items() if not (pa.types.is_floating(k) or pa.types.is_integer(k)))
        raise InputError(
            f"{file}: the column {bad!r} holds no numbers; besides 'stimulus' and 'id' there are class columns only"
        ) from None
