"""Readers of data sets: pictures, folders, manifests, npz files, class files, drawn signs and options."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from fuzzing.formats import make_png, spoil_npz, spoil_parquet, spoil_tiff
from fuzzing.mutations import SCALARS, TEXTS, as_json, encode, spoil_bytes, spoil_lines, spoil_value
from fuzzing.readers import Files, Reader
from named_files import WRITERS
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.validation import parse_size, read_classes
from roadworthy.data import open_dataset
from roadworthy.data.images import decode, decode_mask, image_size
from roadworthy.models.preprocess import parse_range
from samples import CLASSES, MANIFEST, arrays, fill, picture

PICTURES = [
    *(picture(kind) for kind in ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF")),
    *(picture("PNG", mode) for mode in ("P", "LA", "1", "I;16")),
    *(picture("JPEG", "CMYK"), picture("JPEG", progressive=True), picture("WEBP", lossless=True)),
    *(picture("TIFF", compression=name) for name in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")),
    *(picture("TIFF", mode) for mode in ("I;16", "CMYK", "P")),
    *(picture("JPEG", exif=exif) for exif in [Image.Exif().tobytes() + b"x"]),
]


def read_whole(path: Path | dict[str, object], base: Path = Path()) -> None:
    """Open a data set and read what the engine reads of it."""
    data = open_dataset(path, base=base)
    data.fingerprint()
    data.batch(slice(0, 2))


def spoil_picture(random: Random) -> bytes:
    kind = random.randrange(8)
    if kind == 0:
        return make_png(random)
    content = random.choice(PICTURES)
    if kind == 1 and content[:2] in (b"II", b"MM"):
        return spoil_tiff(random, content)
    return spoil_bytes(random, content, PICTURES)


def read_picture(folder: Path) -> None:
    content = (folder / "picture").read_bytes()
    refusals = []
    for read in (decode, image_size, decode_mask):
        try:
            read(content)
        except RoadworthyError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


# folders

FOLDER_NAMES = (
    "signs/red/0.png",
    "signs/red/x.jpg",
    "signs/green/1.tif",
    "signs/new/2.PNG",
    "signs/top.png",
    "signs/red/a\nb.png",
)


def spoil_folder(random: Random, valid: Files) -> dict[str, bytes | None]:
    made: dict[str, bytes | None] = {}
    for _ in range(random.choice((1, 2, 4))):
        name = random.choice((*FOLDER_NAMES, *valid, f"signs/{random.choice(CLASSES)}/{random.choice('aé‮')}.png"))
        made[name] = random.choice((None, b"", spoil_picture(random), picture("JPEG")))
    return made


def valid_folder(folder: Path) -> Files:
    fill(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("signs/*/*.png")}


def read_folder(folder: Path) -> None:
    try:
        read_whole(folder / "signs")
    finally:
        read_whole({"folder": "signs", "on_bad_image": "skip", "group": r"(\d)"}, folder)


# CURE-TSR

CURE_NAMES = ("01_04_00_00_0001.bmp", "01_02_03_05_0002.bmp", "02_14_12_01_0003.bmp", "01_01_01_01_0004.bmp")


def valid_cure_tsr(folder: Path) -> Files:
    valid = {f"cure/Real_Test/{name}": picture("BMP") for name in CURE_NAMES}
    for name, content in valid.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return valid


def spoil_cure_tsr(random: Random, valid: Files) -> dict[str, bytes | None]:
    made: dict[str, bytes | None] = {}
    for _ in range(random.choice((1, 2, 3))):
        if random.random() < 0.6:
            parts = random.choice(CURE_NAMES)[:-4].split("_")
            parts[random.randrange(5)] = random.choice(("", "0", "1", "99", "x", "-1", "0" * 200, "1_1", "٣", "01"))
            name = f"cure/Real_Test/{'_'.join(parts)}{random.choice(('.bmp', '.png', '.BMP', '.txt', ''))}"
        else:
            name = random.choice(list(valid))
        made[name] = random.choice((None, b"", picture("BMP"), spoil_bytes(random, picture("BMP"))))
    return made


# tables

CELLS = MANIFEST.encode().replace(b"path,label", b"path,label,id,group,rain,x0,y0,x1,y1").splitlines()
WIDE = b"\n".join([CELLS[0], *(row + b",i%d,g%d,%d,0,0,4,4.5" % (n, n // 2, n % 3) for n, row in enumerate(CELLS[1:]))])


def manifest_table() -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(WIDE))


def valid_manifest(folder: Path) -> Files:
    fill(folder)
    buffer = io.BytesIO()
    manifest_table().to_parquet(buffer)
    return {"m.csv": WIDE, "m.parquet": buffer.getvalue()}


# npz


def npz_bytes() -> bytes:
    buffer = io.BytesIO()
    more = {"group": np.arange(12), "boxes": np.tile([0.0, 0, 4, 4], (12, 1)), "rain": np.arange(12.0) % 3}
    np.savez_compressed(
        buffer, **arrays(**more, id=np.array([f"i{n}" for n in range(12)]), masks=np.ones((12, 8, 8), bool))
    )
    return buffer.getvalue()


# options

OPTIONS = [
    {
        "npz": "data.npz",
        "limit": 9,
        "seed": 1,
        "size": "8x8",
        "classes": "classes.txt",
        "only": ["red"],
        "rename": {"red": "r"},
    },
    {"folder": "signs", "group": "(.*)_", "size": 8, "on_bad_image": "skip", "without": ["red"]},
    {"manifest": "manifest.csv", "limit": 3, "name": "x", "fallback_size": 4},
    {"builtin": "signs", "n": 14, "seed": 3, "split": "train", "size": 8, "limit": 4},
    {"builtin": "scenery", "n": 4},
    {"builtin": "traffic", "n": 4, "size": 16},
    {"cure_tsr": "signs"},
]
KEYS = sorted({str(key) for option in OPTIONS for key in option})


def spoil_options(random: Random, valid: Files) -> dict[str, bytes]:
    return {"options.json": as_json(spoil_value(random, random.choice(OPTIONS), KEYS))}


def read_options(folder: Path) -> None:
    spec = json.loads((folder / "options.json").read_text(errors="surrogateescape"))
    if isinstance(spec, dict) and isinstance(spec.get("n"), int) and spec["n"] > 50:
        return  # a valid size, which only takes its time
    if isinstance(spec, dict) and isinstance(spec.get("n"), str | list | dict | float | bool):
        open_dataset(spec, base=folder)
    else:
        open_dataset(spec, base=folder).batch(slice(0, 1))


# kinds of other libraries, and well-known sets


def tar_bytes() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for row, label in enumerate(CLASSES):
            facts = json.dumps({"label": label, "group": "g", "box": [0, 0, 4, 4]}).encode()
            for name, content in ((f"a/{row}.png", picture()), (f"a/{row}.json", facts), (f"a/{row}.cls", b"%d" % row)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def spoil_tar(random: Random, valid: Files) -> dict[str, bytes]:
    if random.random() < 0.5:
        return {"x.tar": spoil_bytes(random, valid["x.tar"], [valid["x.tar"]])}
    content = bytearray(valid["x.tar"])
    start = random.randrange(len(content) // 512) * 512  # a header or a block of content, and a field in it
    field, length = random.choice(((0, 100), (100, 8), (124, 12), (148, 8), (156, 1), (157, 100), (257, 8), (345, 155)))
    content[start + field : start + field + length] = random.choice(
        (
            bytes(length),
            b"7" * length,
            b"\x80" + b"\xff" * (length - 1),
            random.randbytes(length),
            b"../x".ljust(length, b"/"),
        )
    )[:length]
    if random.random() < 0.7:  # with the check sum that it should have
        header = content[start : start + 512]
        header[148:156] = b" " * 8
        content[start + 148 : start + 156] = b"%06o\0 " % sum(header)
    return {"x.tar": bytes(content)}


def read_tar(folder: Path) -> None:
    try:
        read_whole(folder / "x.tar")
    finally:
        read_whole({"webdataset": "x.tar", "label": "json:label"}, folder)


def image_parquet(_: Path) -> Files:
    buffer = io.BytesIO()
    pictures = [{"bytes": picture(), "path": name} for name in CLASSES]
    features = {"label": {"names": list(CLASSES), "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    table = pa.table({"image": pictures, "label": [0, 1, 2], "rain": [0.5, None, 2.0]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), buffer)
    return {"x.parquet": buffer.getvalue()}


NAMED_ENTRIES: dict[str, dict[str, object]] = {
    **{kind: {} for kind in ("gtsrb", "cifar10", "svhn", "tiny_imagenet", "mnist", "fashion_mnist", "stl10")},
    **{
        "btsc": {"split": "train"},
        "cifar100": {},
        "cifar10_c": {"corruption": "fog"},
        "emnist": {"variant": "letters"},
    },
    "tiny_imagenet_c": {"corruption": "fog", "severity": 1},
}


def valid_named(folder: Path) -> Files:
    valid = {}
    for kind in NAMED_ENTRIES:
        (folder / kind).mkdir()
        WRITERS[kind](folder / kind)
        for path in (folder / kind).rglob("*"):
            if path.is_file() and "rain" not in path.name:
                valid[str(path.relative_to(folder))] = path.read_bytes()
    return valid


def spoil_named(random: Random, valid: Files) -> dict[str, bytes | None]:
    texts = [name for name in valid if name.endswith((".csv", ".txt"))]
    name = random.choice(texts) if random.random() < 0.5 else random.choice([*valid])
    content = spoil_lines(random, valid[name]) if name in texts else spoil_bytes(random, valid[name])
    return {name: None if random.random() < 0.05 else content, "kind": name.partition("/")[0].encode()}


def read_named(folder: Path) -> None:
    kind = (folder / "kind").read_text()
    read_whole({kind: kind, "fallback_size": 8, "limit": 2, **NAMED_ENTRIES[kind]}, folder)


# texts


def spoil_texts(random: Random, valid: Files) -> dict[str, bytes]:
    number = "".join(random.choices("0123456789-/,x.e ±\t", k=random.randrange(12)))
    content = random.choice(
        (number, random.choice(SCALARS), [random.choice(SCALARS) for _ in range(random.randrange(4))])
    )
    classes = spoil_bytes(random, b"red\ngreen\nblue\n") if random.random() < 0.7 else encode(random.choice(TEXTS))
    return {"text.json": as_json(content), "classes.txt": classes}


def read_texts(folder: Path) -> None:
    value = json.loads((folder / "text.json").read_text(errors="surrogateescape"))
    refusals = []
    for read in (
        lambda: parse_size(value),
        lambda: parse_range(value) if isinstance(value, str) else None,
        lambda: read_classes(folder / "classes.txt"),
        lambda: open_dataset(folder / "data.npz", classes=folder / "classes.txt"),
    ):
        try:
            read()
        except RoadworthyError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def nothing(folder: Path) -> Files:
    """Valid files that are not spoiled themselves."""
    fill(folder)
    return {"classes.txt": (folder / "classes.txt").read_bytes()}


NAMED_FILES = ("layout", "cifar", "mnist", "stl10", "svhn", "tiny_imagenet", "traffic_signs")
TABLES = ("data/table.py", "data/subset.py", "data/base.py")
READERS = [
    Reader(
        "pictures",
        ("data/images.py",),
        lambda _: {},
        lambda random, _: {"picture": spoil_picture(random)},
        read_picture,
        inputs=10_000,
    ),
    Reader("folder of pictures", ("data/folder.py", "data/files.py", *TABLES), valid_folder, spoil_folder, read_folder),
    Reader(
        "cure_tsr folder",
        ("data/cure_tsr.py",),
        valid_cure_tsr,
        spoil_cure_tsr,
        lambda folder: read_whole({"cure_tsr": "cure"}, folder),
    ),
    Reader(
        "manifest csv",
        ("data/manifest.py", *TABLES),
        valid_manifest,
        lambda random, valid: {"m.csv": spoil_lines(random, valid["m.csv"])},
        lambda folder: read_whole(folder / "m.csv"),
    ),
    Reader(
        "manifest parquet",
        ("data/manifest.py", *TABLES),
        valid_manifest,
        lambda random, valid: {"m.parquet": spoil_parquet(random, valid["m.parquet"])},
        lambda folder: read_whole(folder / "m.parquet"),
    ),
    Reader(
        "npz",
        ("data/arrays.py", *TABLES),
        lambda _: {"d.npz": npz_bytes()},
        lambda random, valid: {"d.npz": spoil_npz(random, valid["d.npz"])},
        lambda folder: read_whole(folder / "d.npz"),
    ),
    Reader(
        "options of data",
        ("data/__init__.py", "data/relabelled.py", "data/signs/__init__.py"),
        nothing,
        spoil_options,
        read_options,
    ),
    Reader("webdataset shards", ("data/webdataset.py",), lambda _: {"x.tar": tar_bytes()}, spoil_tar, read_tar),
    Reader(
        "parquet with images",
        ("data/parquet_images.py", "core/parquet.py"),
        image_parquet,
        lambda random, valid: {"x.parquet": spoil_parquet(random, valid["x.parquet"])},
        lambda folder: read_whole(folder / "x.parquet"),
    ),
    Reader(
        "well-known sets",
        tuple(f"data/named/{name}.py" for name in NAMED_FILES),
        valid_named,
        spoil_named,
        read_named,
    ),
    Reader("classes, sizes, ranges", ("core/validation.py", "models/preprocess.py"), nothing, spoil_texts, read_texts),
]
