"""Representations: what a monitor keeps of each image of a data set, stored once under the hash of what decides it.

RUN/representations/<key>/
  rows.npz        rows (N, D) float32, ids, groups, labels
  manifest.json   the recipe and the hash of rows.npz, written last: without it there is no representation
  cost.json       seconds and images, for the timing table; no result depends on it
"""

from __future__ import annotations

import io
import json
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.files import inside, write_bytes, write_json
from roadworthy.core.hashing import digest, digest_file, sealed, unsealed
from roadworthy.core.protocols import Dataset

ROWS, MANIFEST, COST = "rows.npz", "manifest.json", "cost.json"
FOLDER = "representations"


@dataclass(frozen=True)
class Sample:
    """A represented data set: rows (N, D) float32, and of each image its id, group and label (N,)."""

    rows: NDArray[np.float32]
    ids: NDArray[np.str_]
    groups: NDArray[np.str_]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Any) -> Sample:
        """Some of the images."""
        return Sample(self.rows[rows], self.ids[rows], self.groups[rows], self.labels[rows])


@dataclass(frozen=True)
class Cost:
    """What a representation took: seconds, for how many images."""

    seconds: float
    images: int


class Representations:
    """The representations of a run, by key."""

    def __init__(self, run: Path) -> None:
        self.run, self.home = run, run / FOLDER

    @staticmethod
    def key(recipe: Mapping[str, Any]) -> str:
        """The name of what a recipe makes."""
        return digest(dict(recipe))[:32]

    def __contains__(self, key: str) -> bool:
        return self._file(key, MANIFEST).is_file()

    def ensure(
        self,
        recipe: Mapping[str, Any],
        data: Dataset,
        represent: Callable[[Dataset], NDArray[np.float32]],
        spared: Callable[[], float] = float,
    ) -> str:
        """The key of the representation, computed and stored now unless it is there whole.

        `spared` says how many seconds more it would have taken this thread without what others had computed before.
        """
        key = self.key(recipe)
        if key in self:
            return key
        spared()
        started = time.perf_counter()
        rows = represent(data)
        seconds = time.perf_counter() - started + spared()
        if len(rows) != len(data):
            raise InputError(f"{len(rows)} representations for the {len(data)} images of {data.name}")
        folder = self.home / key
        folder.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        text = (np.array([*map(_plain, column)], dtype=np.str_) for column in (data.ids, data.groups))
        ids, groups = text
        np.savez(buffer, allow_pickle=False, rows=rows, ids=ids, groups=groups, labels=data.labels)
        write_bytes(folder / ROWS, buffer.getvalue())
        write_json(folder / COST, sealed({"seconds": seconds, "images": len(data)}))
        write_json(folder / MANIFEST, {"recipe": dict(recipe), "rows": digest_file(folder / ROWS)})
        return key

    def drop_damaged(self) -> None:
        """Take back what is not as its manifest says, so that it is made again; only for who holds the lock."""
        for folder in sorted(self.home.glob("*")):
            if not _is_whole(folder):
                shutil.rmtree(folder)

    def load(self, key: str) -> Sample:
        """A stored representation."""
        path = self._file(key, ROWS)
        try:
            with np.load(path, allow_pickle=False) as stored:
                return Sample(**{field.name: stored[field.name] for field in fields(Sample)})
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} cannot be read ({error}): run the study again to make it anew") from None

    def cost(self, key: str) -> Cost:
        """What it took to make it."""
        return _read_cost(self._file(key, COST).parent)

    def _file(self, key: str, name: str) -> Path:
        return inside(self.run, FOLDER, key, name)


def _plain(text: str) -> str:
    """File names may hold bytes that are no UTF-8; what is stored may not."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _read_cost(folder: Path) -> Cost:
    return Cost(**unsealed((folder / COST).read_text(encoding="utf-8")))


def _is_whole(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if Representations.key(manifest["recipe"]) != folder.name:
            return False
        _read_cost(folder)
        return bool(manifest["rows"] == digest_file(folder / ROWS))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
