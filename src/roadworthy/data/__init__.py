"""Data sets: images with labels, boxes, masks, groups and conditions, from files of many kinds, objects, or drawn."""

from __future__ import annotations

import inspect
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.registry import Registry
from roadworthy.core.remote import KIND_PREFIXES
from roadworthy.core.roles import Dataset
from roadworthy.core.validation import check_settings, find_mode, parse_size
from roadworthy.data.annotated import open_coco, open_voc, open_yolo
from roadworthy.data.arrays import NpzDataset, from_arrays
from roadworthy.data.base import OpenedDataset, Opening, Size
from roadworthy.data.cure_tsr import CureTsrDataset
from roadworthy.data.folder import FolderDataset
from roadworthy.data.huggingface import is_huggingface, is_saved_folder, open_huggingface
from roadworthy.data.live import LIVE_DATA, Indexed, LiveData, live_data
from roadworthy.data.manifest import ManifestDataset
from roadworthy.data.named import NAMED
from roadworthy.data.parallel import Progress
from roadworthy.data.parquet_images import open_parquet
from roadworthy.data.relabelled import ClassSelection, Relabelled
from roadworthy.data.signs import BuiltinDataset
from roadworthy.data.subset import Subset, rows_over_classes, split_by_group
from roadworthy.data.torch_datasets import is_torch_dataset, open_torch_dataset
from roadworthy.data.webdataset import is_shard_folder, open_webdataset

__all__ = [
    "DATA",
    "BuiltinDataset",
    "OpenedDataset",
    "Opening",
    "Relabelled",
    "Subset",
    "open_dataset",
    "plain_options",
    "split_by_group",
]

DATA: Registry[Callable[..., OpenedDataset]] = Registry("dataset")
"""Kinds of data sets: called with the source (a path or name), an `Opening`, and options of their own by keyword."""

_OWN_KINDS: Mapping[str, Callable[..., OpenedDataset]] = {
    "folder": FolderDataset,
    "manifest": ManifestDataset,
    "npz": NpzDataset,
    "parquet": open_parquet,
    "huggingface": open_huggingface,
    "torch_dataset": open_torch_dataset,
    "webdataset": open_webdataset,
    "coco": open_coco,
    "voc": open_voc,
    "yolo": open_yolo,
    "cure_tsr": CureTsrDataset,
    **NAMED,
    "builtin": BuiltinDataset,
}
for _name, _kind_opener in _OWN_KINDS.items():
    DATA.register(_name)(_kind_opener)
KIND_PREFIXES.update(_OWN_KINDS)

LIVE_DATA += [
    LiveData("huggingface", is_huggingface, open_huggingface),
    LiveData("torch_dataset", is_torch_dataset, open_torch_dataset),
]
FOLDER_KINDS: dict[str, Callable[[Path], bool]] = {"huggingface": is_saved_folder, "webdataset": is_shard_folder}
"""Kinds of folders other than one folder per class, with who recognises them."""
_KIND_OF_SUFFIX = {".csv": "manifest", ".parquet": "parquet", ".npz": "npz", ".tar": "webdataset", ".json": "coco"}

Spec = str | Path | Mapping[str, Any] | Dataset | tuple[Any, ...] | Indexed | Any
"""A path or `kind:source`, a mapping as in a study, an open data set, arrays, or an object that is recognised."""


def open_dataset(
    spec: Spec,
    *,
    classes: Sequence[str] | str | Path | None = None,
    size: Size | int | None = None,
    fallback_size: Size | int | None = None,
    base: Path = Path(),
    on_bad_image: str = "error",
    limit: int | None = None,
    seed: int = 0,
    name: str | None = None,
    progress: Progress | None = None,
    only: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    unlabelled: bool = False,
) -> OpenedDataset:
    """Open a data set: a path, `builtin:signs`, a mapping as in a study, (images, labels[, names]), or a live object.

    Live objects are `Dataset`s and what `LIVE_DATA` recognises: data sets of torch, of the library `datasets` and of
    MAITE. A mapping names the kind and its options, such as `{"folder": "signs", "group": "_(.*)_"}`; the options of
    this function may be in it too, and take precedence. The options are those of `Opening` and of `ClassSelection`:
    classes are chosen and renamed after the data is read, and before `limit` takes some of the images. `unlabelled`
    takes a folder of images without subfolders, too, as for outliers, whose classes nobody asks for.

    >>> open_dataset({"builtin": "signs", "n": 140, "limit": 14}).class_names[5]
    'stop'
    >>> open_dataset({"builtin": "signs", "n": 140, "only": ["stop", "yield"], "limit": 4}).labels.tolist()
    [0, 1, 0, 1]
    """
    selection = ClassSelection(only, without, rename)
    opening = Opening(
        name=name or _default_name(spec),
        classes=classes,
        size=size,
        fallback_size=fallback_size,
        on_bad_image=on_bad_image,
        limit=limit,
        seed=seed,
        base=base,
        progress=progress,
        unlabelled=unlabelled,
    )
    if isinstance(spec, Mapping) and live_data(spec) is None:
        return _from_mapping(spec, opening, selection)
    return _selected(partial(_open_all, spec), opening, selection)


def with_limit(spec: str | Mapping[str, Any], limit: int, base: Path = Path()) -> dict[str, Any]:
    """The entry of a data set in a study with at most so many images of it.

    >>> with_limit("builtin:signs", 14), with_limit({"builtin": "signs", "limit": 10}, 14)
    ({'builtin': 'signs', 'limit': 14}, {'builtin': 'signs', 'limit': 10})
    """
    if isinstance(spec, Mapping):
        return {**spec, "limit": min(limit, spec.get("limit") or limit)}
    kind, source = _kind(spec, Opening(name=str(spec), base=base))
    return {kind: str(source), "limit": limit}


def _open_all(spec: Spec, opening: Opening) -> OpenedDataset:
    """A data set that is not given as a mapping, with all its classes."""
    if isinstance(spec, Dataset):
        return _ready(spec, opening)
    if isinstance(spec, tuple):
        if len(spec) not in (2, 3):
            raise InputError(
                f"data in memory is (images, labels) or (images, labels, class_names), not a tuple of {len(spec)}"
            )
        return from_arrays(spec[0], spec[1], spec[2] if len(spec) == 3 else None, opening)
    if not isinstance(spec, str | Path):
        live = live_data(spec)
        if live is None:
            what = "a path, a mapping, a tuple of arrays, a Dataset, or a data set of torch, Hugging Face or MAITE"
            raise InputError(f"a data set is {what}, not {type(spec).__name__}")
        return live.open(spec, opening)
    kind, source = _kind(spec, opening)
    return DATA.get(kind)(source, opening)


def _selected(
    open_all: Callable[[Opening], OpenedDataset], opening: Opening, selection: ClassSelection
) -> OpenedDataset:
    """The data set with the classes that were asked for; `limit` then chooses among their images."""
    if not selection:
        return open_all(opening)
    return _limited(selection.of(open_all(replace(opening, limit=None))), opening)


def _limited(dataset: OpenedDataset, opening: Opening) -> OpenedDataset:
    """At most so many images of a data set as the opening says, spread over its classes and groups."""
    if opening.limit is None or opening.limit >= len(dataset):
        return dataset
    rows = rows_over_classes(dataset.table, opening.limit, opening.seed)
    part = Subset(dataset, rows.tolist())
    part.table = dataset.table.limited(rows)
    return part


def _default_name(spec: Spec) -> str:
    """The name of a data set that was given none: that of its file or folder."""
    if isinstance(spec, Mapping):
        source = next((value for key, value in spec.items() if key in DATA), None)
        spec = source if isinstance(source, str | Path) else ""
    return Path(str(spec).rpartition(":")[2]).stem or "data" if isinstance(spec, str | Path) else "data"


def _kind(spec: str | Path, opening: Opening) -> tuple[str, str]:
    """The kind of data set a path or `kind:source` stands for."""
    text, path = str(spec), opening.path(spec)
    mode = find_mode(path, "data") if text else 0
    prefix, colon, rest = text.partition(":")
    if colon and prefix in DATA and not mode:
        return prefix, rest
    if stat.S_ISDIR(mode):
        return next((kind for kind, recognises in FOLDER_KINDS.items() if recognises(path)), "folder"), text
    suffix = path.suffix.lower()
    if not mode and not ("{" in path.name and suffix in _KIND_OF_SUFFIX):
        raise InputError(
            f"there is no data at {str(path)!r}: give a folder, a .csv, .parquet, .npz, .tar or .json (COCO) file, or "
            "builtin:signs"
        )
    if suffix not in _KIND_OF_SUFFIX:
        known = ", ".join(_KIND_OF_SUFFIX)
        raise InputError(f"{str(path)!r} is not a known kind of data set: give a folder or a file ending in {known}")
    return _KIND_OF_SUFFIX[suffix], text


def plain_options() -> set[str]:
    """The options of data sets that are words or numbers and never a path: a split, a corruption, a group."""
    options = {"builtin": False}
    for kind in DATA:
        for option in inspect.signature(DATA.get(kind)).parameters.values():
            if option.kind is option.KEYWORD_ONLY:
                options[option.name] = options.get(option.name, False) or "Path" in str(option.annotation)
    return {name for name, is_path in options.items() if not is_path}


def _from_mapping(spec: Mapping[str, Any], opening: Opening, selection: ClassSelection) -> OpenedDataset:
    kinds = [key for key in spec if key in DATA]
    if not kinds:
        raise UnknownName("dataset", str(next(iter(spec), "")), DATA)
    if len(kinds) > 1:
        raise InputError(f"a data set is of one kind, not of {kinds}")
    kind = kinds[0]
    build = DATA.get(kind)
    if not isinstance(spec[kind], str | Path) and kind not in (live.kind for live in LIVE_DATA):
        raise InputError(f"{kind}: {spec[kind]!r} must be a path or a name")
    parameters = inspect.signature(build).parameters.values()
    own_options = {option.name for option in parameters if option.kind is option.KEYWORD_ONLY}
    choices = {option.name for option in fields(ClassSelection)} - own_options
    shared = {option.name for option in fields(Opening)} - own_options - {"base", "progress", "unlabelled"}
    options = {key: value for key, value in spec.items() if key != kind}
    for key in options:
        if key not in own_options | shared | choices:
            raise UnknownName(f"option of a {kind} dataset", str(key), own_options | shared | choices)
    own, common, chosen = (
        {key: value for key, value in options.items() if key in names} for names in (own_options, shared, choices)
    )
    check_settings(build, own, f"{kind} dataset option")
    opening, selection = replace(opening, **common), replace(selection, **chosen)
    return _selected(lambda opening: build(spec[kind], opening, **own), opening, selection)


def _ready(dataset: Dataset, opening: Opening) -> OpenedDataset:
    """A data set that is open already, with the options that can still be applied."""
    opening.refuse_other_classes(dataset)
    opened = _limited(dataset if isinstance(dataset, OpenedDataset) else Subset(dataset, range(len(dataset))), opening)
    size = parse_size(opening.size)
    return opened if size is None else opened.resized(size)
