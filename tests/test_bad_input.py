"""Bad input: whatever a user gives, one clear sentence, exit code 2, and nothing on disk has changed."""

from __future__ import annotations

import errno
import fcntl
import io
import itertools
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import onnx
import pandas as pd
import pytest
import yaml
from PIL import Image

from commands import call_main, check_sentence, snapshot, without_progress
from roadworthy.core.hashing import sealed, unsealed
from samples import CRITERIA, MANIFEST, PREDICTIONS, arrays, fill, network, picture, squares, study

Make = Callable[[Path], object]


class Row(NamedTuple):
    """One mistake: how to make it in a folder of valid files, the command that meets it, what the sentence says."""

    name: str
    make: Make
    words: str
    says: str


def nothing(folder: Path) -> None:
    """The mistake is in the words."""


def put(name: str, content: bytes | str) -> Make:
    """Write a file."""

    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def put_study(**changes: Any) -> Make:
    return put("study.yaml", yaml.safe_dump(study(**changes)))


def put_criteria(**changes: Any) -> Make:
    entry = {**CRITERIA[0], **changes}
    return put("c.yaml", yaml.safe_dump([{key: value for key, value in entry.items() if value is not None}]))


def put_npz(**changes: Any) -> Make:
    return lambda folder: np.savez(folder / "data.npz", **arrays(**changes))


def put_model(body: str) -> Make:
    """A Python function as the model."""
    return put("model.py", f"import numpy as np\ndef answer(images):\n    {body}\n")


def put_manifest(**columns: Any) -> Make:
    """The manifest with a column replaced or added."""

    def make(folder: Path) -> None:
        table = pd.read_csv(io.StringIO(MANIFEST))
        table.assign(**columns).to_csv(folder / "manifest.csv", index=False)

    return make


def put_network(change: Callable[[onnx.ModelProto], object], **options: Any) -> Make:
    """The model with something changed in its graph."""

    def make(folder: Path) -> None:
        model = network(**options)
        change(model)
        (folder / "model.onnx").write_bytes(model.SerializeToString())

    return make


def cut(name: str, keep: float = 0.5) -> Make:
    """Truncate a file."""

    def make(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * keep)])

    return make


def remove(name: str) -> Make:
    return lambda folder: (folder / name).unlink()


def folder_at(name: str) -> Make:
    """A folder where a file should be."""

    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return make


def fifo_at(name: str) -> Make:
    """A named pipe, from which a careless reader waits for ever."""

    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return make


def link(name: str, target: str) -> Make:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return make


def both(*makes: Make) -> Make:
    return lambda folder: [make(folder) for make in makes]


def spoil_png(folder: Path) -> None:
    """One wrong byte in the middle of the pixels."""
    path = folder / "signs/red/0.png"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def chunk(kind: bytes, content: bytes) -> bytes:
    """A PNG chunk with its checksum."""
    return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)


def png_of_size(width: int, height: int, *extra: bytes) -> bytes:
    """A tiny PNG file that claims a size."""
    header = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 2, 0, 0, 0])
    body = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(extra) + body + chunk(b"IEND", b"")


def frames(kind: str) -> bytes:
    """An animation of two frames."""
    first, second = (Image.fromarray(image) for image in squares()[0][[0, 5]])
    buffer = io.BytesIO()
    first.save(buffer, kind, save_all=True, append_images=[second])
    return buffer.getvalue()


def wide() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 8)).save(buffer, "PNG")
    return buffer.getvalue()


def floats() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.ones((8, 8), np.float32)).save(buffer, "TIFF")
    return buffer.getvalue()


def only_red(folder: Path) -> None:
    for name in ("green", "blue"):
        shutil.rmtree(folder / "signs" / name)


def npz_with(name: str, content: bytes, flag: int = 0) -> Make:
    """The npz file with one more member; flag 1 claims that it is encrypted."""

    def make(folder: Path) -> None:
        with zipfile.ZipFile(folder / "data.npz", "a") as archive:
            archive.writestr(name, content)
        if flag:
            path = folder / "data.npz"
            raw = bytearray(path.read_bytes())
            for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
                raw[raw.rindex(mark) + place] |= flag
            path.write_bytes(raw)

    return make


def npy_claiming(shape: str) -> bytes:
    """An array file whose header claims a shape and whose body is empty."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def objects() -> Make:
    """An array of Python objects whose unpickling would run a command."""

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (Path("hacked"),)

    def make(folder: Path) -> None:
        column = np.empty(12, object)
        column[:] = [Hostile()] * 12
        np.savez(folder / "data.npz", **arrays(extra=column))

    return make


class _Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("hacked"),)


def external(place: str) -> Make:
    """The model with its weights in another file."""

    def move(model: onnx.ModelProto) -> None:
        weights = model.graph.initializer[0]
        weights.ClearField("raw_data")
        weights.data_location = onnx.TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=place)

    return put_network(move)


def second_input(model: onnx.ModelProto) -> None:
    extra = model.graph.input.add()
    extra.CopyFrom(model.graph.input[0])
    extra.name = "mask"


def as_text_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING


def unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "Flaten"


def newer_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 999


def poisoned(value: float) -> Callable[[onnx.ModelProto], None]:
    """A bias that turns every answer into NaN."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[1].raw_data = np.full(3, value, np.float32).tobytes()

    return change


def edit_record(change: Callable[[dict[str, Any]], object]) -> Make:
    """Tamper with run.json, and make its seal anew."""

    def make(folder: Path) -> None:
        path = folder / "run" / "run.json"
        record = unsealed(path.read_text())
        change(record)
        path.write_text(json.dumps(sealed(record)))

    return make


def in_first_case(name: str, content: bytes | str) -> Make:
    def make(folder: Path) -> None:
        case = min(path.parent for path in (folder / "run").glob("readouts/**/manifest.json"))
        put(name, content)(case)

    return make


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 12))
EVALUATE = "evaluate --suite quick --model model.onnx"
FOLDER = f"{EVALUATE} --data signs"
NPZ = f"{EVALUATE} --data data.npz"
TABLE = f"{EVALUATE} --data manifest.csv"
MODEL = "evaluate --suite quick --data data.npz --model"
ANY = "evaluate --suite quick --model model.py:answer --trust --no-isolate"
CODE = f"{ANY} --data data.npz"
JUDGE = "verdict run --criteria c.yaml"

IMAGES = [
    Row("one wrong byte", spoil_png, FOLDER, r"signs/red/0\.png.*checksum"),
    Row("truncated png", cut("signs/red/0.png"), FOLDER, r"signs/red/0\.png.*truncated"),
    Row("truncated jpeg", put("signs/red/a.jpg", picture("JPEG")[:-40]), FOLDER, r"signs/red/a\.jpg.*(?i:truncated)"),
    Row("truncated tiff", put("signs/red/a.tif", picture("TIFF")[:-60]), FOLDER, r"signs/red/a\.tif"),
    Row("truncated webp", put("signs/red/a.webp", picture("WEBP")[:-20]), FOLDER, r"signs/red/a\.webp"),
    Row("empty image", put("signs/red/0.png", b""), FOLDER, r"signs/red/0\.png.*empty"),
    Row("text as image", put("signs/red/0.png", "hello"), FOLDER, r"signs/red/0\.png.*not an intact"),
    Row("program as image", put("signs/red/a.png", b"%!PS-Adobe-3.0\nquit"), FOLDER, r"signs/red/a\.png.*an intact"),
    Row("zero-size image", put("signs/red/0.png", png_of_size(0, 8)), FOLDER, r"signs/red/0\.png"),
    Row("huge image", put("signs/red/0.png", png_of_size(2**31 - 1, 9)), FOLDER, r"signs/red/0\.png.*too many pixels"),
    Row("bomb", put("signs/red/0.png", png_of_size(12_000, 12_000)), FOLDER, r"signs/red/0\.png.*too many pixels"),
    Row(
        "bomb in a text",
        put("signs/red/0.png", png_of_size(8, 8, chunk(b"zTXt", b"k\0\0" + zlib.compress(b"\0" * 10**7)))),
        FOLDER,
        r"signs/red/0\.png",
    ),
    Row("animated gif", put("signs/red/a.gif", frames("GIF")), FOLDER, r"a\.gif.*2 frames"),
    Row("animated png", put("signs/red/a.png", frames("PNG")), FOLDER, r"a\.png.*2 frames"),
    Row("animated webp", put("signs/red/a.webp", frames("WEBP")), FOLDER, r"a\.webp.*2 frames"),
    Row("pages", put("signs/red/a.tif", frames("TIFF")), FOLDER, r"a\.tif.*2 frames"),
    Row("floating point image", put("signs/red/a.tif", floats()), FOLDER, r"a\.tif.*32-bit"),
    Row("link to itself", link("signs/red/a.png", "a.png"), FOLDER, r"a\.png.*symbolic links"),
    Row("dangling link", link("signs/red/a.png", "gone.png"), FOLDER, r"a\.png.*No such file"),
    Row("bad image, newline in its name", put("signs/red/a\nb.png", b"x"), FOLDER, r"signs/red/a\\nb\.png"),
    Row("all images bad", lambda f: [p.write_bytes(b"") for p in f.rglob("*.png")], FOLDER, r"12 of 12 images"),
    Row(
        "nothing left to skip to",
        lambda f: [p.write_bytes(b"") for p in f.rglob("*.png")],
        f"{FOLDER} --on-bad-image skip",
        r"12 of 12 images",
    ),
]

FOLDERS = [
    Row("no such folder", nothing, f"{EVALUATE} --data nowhere", r"no data at 'nowhere'"),
    Row("data path is empty", nothing, f"{EVALUATE} --data ''", r"data"),
    Row("empty folder", folder_at("empty"), f"{EVALUATE} --data empty", r"'empty' has no subfolders"),
    Row("empty class folder", folder_at("signs/pink"), FOLDER, r"signs/pink' holds no images"),
    Row("images without class folders", nothing, f"{EVALUATE} --data signs/red", r"'signs/red' has no subfolders"),
    Row("one class only", only_red, FOLDER, r"model answers 3 classes, but data set signs has 1"),
    Row("one class too many", put("signs/pink/0.png", picture()), FOLDER, r"3 classes, but data set signs has 4"),
    Row(
        "images of many sizes",
        both(put_model("return np.full((len(images), 3), 1 / 3)"), put("signs/red/b.png", wide())),
        f"{ANY} --data signs",
        r"signs differ in size.*--size",
    ),
    Row("folder is a link to itself", link("loop", "loop"), f"{EVALUATE} --data loop", r"loop"),
    Row("unknown kind of file", put("data.zip", b"PK"), f"{EVALUATE} --data data.zip", r"data\.zip' is not a known"),
    Row("unknown kind of data", put_study(data={"test": {"foldr": "x"}}), "run study.yaml", r"did you mean 'folder'"),
    Row("unknown built-in data", nothing, f"{EVALUATE} --data builtin:drwan", r"unknown builtin data set 'drwan'"),
    Row(
        "unknown option of data",
        put_study(data={"test": {"npz": "data.npz", "limt": 3}}),
        "run study.yaml",
        r"did you mean 'limit'",
    ),
    Row("data of two kinds", put_study(data={"test": {"npz": "a", "folder": "b"}}), "run study.yaml", r"of one kind"),
    Row("data kind without a path", put_study(data={"test": {"npz": 3}}), "run study.yaml", r"npz: 3 must be a path"),
    Row("limit of nothing", put_study(data={"test": {"npz": "data.npz", "limit": 0}}), "run study.yaml", r"limit"),
    Row("limit is text", put_study(data={"test": {"npz": "data.npz", "limit": "x"}}), "run study.yaml", r"limit"),
    Row("size is text", put_study(data={"test": {"npz": "data.npz", "size": "x"}}), "run study.yaml", r"size 'x'"),
    Row("classes is a number", put_study(data={"test": {"npz": "data.npz", "classes": 3}}), "run study.yaml", r"class"),
    Row("group is no pattern", put_study(data={"test": {"folder": "signs", "group": "("}}), "run study.yaml", r"group"),
    Row("group is a list", put_study(data={"test": {"folder": "signs", "group": [1]}}), "run study.yaml", r"group"),
]

CLASS_FILES = [
    Row("no class file", nothing, f"{NPZ} --classes no.txt", r"no\.txt"),
    Row("class file is a folder", folder_at("c"), f"{NPZ} --classes c", r"class file c is not a file but a folder"),
    Row("class file is a pipe", fifo_at("c"), f"{NPZ} --classes c", r"class file c is not a file but a pipe"),
    Row("class file empty", put("classes.txt", ""), f"{NPZ} --classes classes.txt", r"classes\.txt' has an empty line"),
    Row("class file binary", put("classes.txt", b"\xff\xfe\0"), f"{NPZ} --classes classes.txt", r"classes\.txt.*UTF-8"),
    Row(
        "class named twice",
        put("classes.txt", "red\nred\nblue\n"),
        f"{FOLDER} --classes classes.txt",
        r"twice.*red",
    ),
    Row("class file too short", put("classes.txt", "red\ngreen\n"), f"{FOLDER} --classes classes.txt", r"blue"),
    Row("class file mismatch", put("classes.txt", "red\ngreen\npink\n"), f"{FOLDER} --classes classes.txt", r"pink"),
    Row("class file blank line", put("classes.txt", "red\n\nblue\n"), f"{NPZ} --classes classes.txt", r"empty line"),
]

TABLES = [
    Row("no label column", put("manifest.csv", "path\nsigns/red/0.png\n"), TABLE, r"manifest\.csv.*no column 'label'"),
    Row("no path column", put("manifest.csv", "file,label\na,b\n"), TABLE, r"manifest\.csv.*no column 'path'"),
    Row("empty table", put("manifest.csv", ""), TABLE, r"manifest\.csv.*no column 'path'"),
    Row("no rows", put("manifest.csv", "path,label\n"), TABLE, r"manifest\.csv.*no images"),
    Row("label missing", put_manifest(label=["red"] * 11 + [None]), TABLE, r"'label' is empty in 1 of 12 rows.*row 12"),
    Row("not UTF-8", put("manifest.csv", "path,label\ncafé.png,x\n".encode("latin-1")), TABLE, r"manifest\.csv.*UTF-8"),
    Row("NUL in the table", put("manifest.csv", "path,label\na\0b.png,x\n"), TABLE, r"a\\x00b\.png|NUL"),
    Row("binary table", put("manifest.csv", bytes(range(256))), TABLE, r"manifest\.csv"),
    Row("too many values", put("manifest.csv", MANIFEST + "a,b,c\n"), TABLE, r"3 values in row 13, but 2 columns"),
    Row("open quote", put("manifest.csv", MANIFEST + '"a,b\n'), TABLE, r"manifest\.csv"),
    Row("two columns of one name", put("manifest.csv", "path,label,path\na,b,c\n"), TABLE, r"two columns of one name"),
    Row("duplicate ids", put_manifest(id="same"), TABLE, r"ids must be unique.*'same'"),
    Row("an image that is not there", put("manifest.csv", MANIFEST + "gone.png,red\n"), TABLE, r"gone\.png.*No such"),
    Row("an image that is a folder", put("manifest.csv", MANIFEST + "signs,red\n"), TABLE, r"signs'"),
    Row(
        "an image that is a pipe",
        both(fifo_at("p.png"), put("manifest.csv", MANIFEST + "p.png,red\n")),
        TABLE,
        r"p\.png",
    ),
    Row("an image without end", put("manifest.csv", MANIFEST + "/dev/zero,red\n"), TABLE, r"/dev/zero"),
    Row("box outside its image", put_manifest(box="90 90 99 99"), TABLE, r"12 boxes lie outside their image"),
    Row("box turned round", put_manifest(box="5 5 2 2"), TABLE, r"boxes end before they begin"),
    Row("box with a gap", put_manifest(x0=1, y0=1, x1=5, y1=None), TABLE, r"manifest\.csv"),
    Row("box of three numbers", put_manifest(box="1 2 3"), TABLE, r"must be four numbers"),
    Row("box of words", put_manifest(box="a b c d"), TABLE, r"not a number"),
    Row("box infinite", put_manifest(box="0 0 inf 5"), TABLE, r"infinite"),
    Row("half of the box columns", put_manifest(x0=1, y0=2), TABLE, r"x0, y0, x1 and y1"),
    Row("mask of another size", both(put("m.png", png_of_size(4, 4)), put_manifest(mask="m.png")), TABLE, r"m\.png"),
    Row("mask missing", put_manifest(mask=["model.onnx"] + [None] * 11), TABLE, r"'mask' is empty in 11"),
    Row("labels from one", put_manifest(label=[1, 2, 3] * 4), TABLE, r"numbers 1 to 3.*count from 1"),
    Row("label gap", put_manifest(label=[0, 1, 4] * 4), TABLE, r"3 classes, but data set manifest has 5"),
    Row("label negative", put_manifest(label=[-1, 0, 1] * 4), TABLE, r"-1 to 1"),
    Row("label huge", put_manifest(label=[0, 1, 10**30] * 4), TABLE, r"not class indices"),
    Row("table is a pipe", fifo_at("manifest.csv"), TABLE, r"manifest\.csv"),
    Row("table is a folder of nothing", folder_at("manifest.csv"), TABLE, r"manifest\.csv' has no subfolders"),
    Row("field too long", put("manifest.csv", "path,label\n" + "x" * 200_000 + ",red\n"), TABLE, r"manifest\.csv"),
    Row("parquet that is none", put("t.parquet", "PAR1"), f"{EVALUATE} --data t.parquet", r"t\.parquet"),
    Row(
        "parquet truncated",
        both(lambda f: pd.read_csv(f / "manifest.csv").to_parquet(f / "t.parquet"), cut("t.parquet")),
        f"{EVALUATE} --data t.parquet",
        r"t\.parquet",
    ),
    Row(
        "NaN as label",
        lambda f: pd.DataFrame({"path": ["a.png"], "label": [float("nan")]}).to_parquet(f / "t.parquet"),
        f"{EVALUATE} --data t.parquet",
        r"t\.parquet.*'label' is empty",
    ),
    Row(
        "fractions as labels",
        lambda f: pd.DataFrame({"path": ["a.png"], "label": [0.5]}).to_parquet(f / "t.parquet"),
        f"{EVALUATE} --data t.parquet",
        r"t\.parquet.*fractions",
    ),
]

ARRAYS = [
    Row("text as npz", put("data.npz", "hello"), NPZ, r"data\.npz"),
    Row("empty npz", put("data.npz", b""), NPZ, r"data\.npz"),
    Row("truncated npz", cut("data.npz"), NPZ, r"data\.npz"),
    Row("npz is a pipe", fifo_at("data.npz"), NPZ, r"data\.npz"),
    Row("a zip that is no npz", put("data.npz", b"PK\x05\x06" + bytes(18)), NPZ, r"data\.npz.*no array 'images'"),
    Row("pickle as npz", put("data.npz", pickle.dumps([1])), NPZ, r"data\.npz"),
    Row("hostile pickle as npz", put("data.npz", pickle.dumps(_Command())), NPZ, r"data\.npz"),
    Row("objects in npz", objects(), NPZ, r"data\.npz.*Python objects"),
    Row("zip slip", npz_with("../../evil.npy", b"x"), NPZ, r"data\.npz"),
    Row("zip slip, absolute", npz_with("/tmp/evil.txt", b"x"), NPZ, r"data\.npz"),
    Row("encrypted member", npz_with("more.npy", b"x" * 50, flag=1), NPZ, r"data\.npz"),
    Row("a shape too large", npz_with("more.npy", npy_claiming("(10**14,)")), NPZ, r"data\.npz"),
    Row("a shape far too large", npz_with("more.npy", npy_claiming(f"({10**16},)")), NPZ, r"data\.npz"),
    Row("a negative shape", npz_with("more.npy", npy_claiming("(-5,)")), NPZ, r"data\.npz"),
    Row("no labels", put_npz(labels=None), NPZ, r"data\.npz.*no array 'labels'"),
    Row("labels of another length", put_npz(labels=np.zeros(3, int)), NPZ, r"data\.npz.*labels must have shape"),
    Row("labels are fractions", put_npz(labels=np.zeros(12)), NPZ, r"data\.npz.*labels must be whole"),
    Row("labels beyond the classes", put_npz(labels=np.full(12, 7)), NPZ, r"labels are 7 to 7, but there are 3"),
    Row("labels do not fit 64 bits", put_npz(labels=np.full(12, 2**64 - 1, np.uint64)), NPZ, r"data\.npz.*labels"),
    Row("float images", put_npz(images=np.zeros((12, 8, 8, 3))), NPZ, r"data\.npz.*uint8"),
    Row("channels first", put_npz(images=np.zeros((12, 3, 8, 8), np.uint8)), NPZ, r"data\.npz.*transpose"),
    Row("images of no size", put_npz(images=np.zeros((12, 0, 8, 3), np.uint8)), NPZ, r"data\.npz.*shape"),
    Row("no images", put_npz(images=np.zeros((0, 8, 8, 3), np.uint8), labels=np.zeros(0, int)), NPZ, r"no images"),
    Row("a single number as images", put_npz(images=np.uint8(3)), NPZ, r"data\.npz.*shape"),
    Row("duplicate ids in npz", put_npz(id=np.zeros(12, int)), NPZ, r"data\.npz.*unique.*'0'"),
    Row("duplicate class names", put_npz(class_names=np.array(["a", "a", "b"])), NPZ, r"class names must be unique"),
    Row("class names are numbers", put_npz(class_names=np.arange(3)), NPZ, r"class_names must be a list of text"),
    Row("masks of another shape", put_npz(masks=np.zeros((12, 4, 4), bool)), NPZ, r"data\.npz.*masks"),
    Row("boxes of another shape", put_npz(boxes=np.zeros((12, 3))), NPZ, r"data\.npz.*boxes"),
    Row("boxes of text", put_npz(boxes=np.full((12, 4), "x")), NPZ, r"data\.npz.*box"),
]

MODELS = [
    Row("no such model", nothing, f"{MODEL} nowhere.onnx", r"nowhere\.onnx"),
    Row("no such model of any kind", nothing, f"{MODEL} nowhere.bin", r"no model nowhere\.bin"),
    Row("model of unknown kind", put("m.bin", "x"), f"{MODEL} m.bin", r"what kind of model m\.bin"),
    Row("text as onnx", put("model.onnx", "hello"), NPZ, r"model\.onnx is not an ONNX model"),
    Row("empty onnx", put("model.onnx", b""), NPZ, r"model\.onnx is not an ONNX model"),
    Row("truncated onnx", cut("model.onnx"), NPZ, r"model\.onnx"),
    Row("folder as onnx", folder_at("model.onnx"), NPZ, r"model\.onnx"),
    Row("pipe as onnx", fifo_at("model.onnx"), NPZ, r"no ONNX file model\.onnx"),
    Row("weights missing", external("weights.bin"), NPZ, r"model\.onnx keeps its weights in weights\.bin"),
    Row("weights outside", external("../../../etc/passwd"), NPZ, r"outside its folder"),
    Row("weights outside, absolute", external("/etc/passwd"), NPZ, r"outside its folder"),
    Row("weights through a link", both(link("w", "/etc"), external("w/passwd")), NPZ, r"outside its folder"),
    Row("weights too short", both(external("w.bin"), put("w.bin", b"x")), NPZ, r"model\.onnx"),
    Row("two inputs", put_network(second_input), NPZ, r"one input for the image.*'image', 'mask'"),
    Row("input of text", put_network(as_text_input), NPZ, r"input of type STRING"),
    Row("unknown operator", put_network(unknown_operator), NPZ, r"cannot load model\.onnx.*Flaten"),
    Row("newer opset", put_network(newer_opset), NPZ, r"model\.onnx.*opset 999"),
    Row("answers NaN", put_network(poisoned(float("nan"))), NPZ, r"model\.onnx answers NaN"),
    Row("answers infinity", put_network(poisoned(float("inf")), softmax=False), NPZ, r"model\.onnx answers NaN or inf"),
    Row("logits as probabilities", nothing, f"{MODEL} logits.onnx --outputs probabilities", r"logits where prob"),
    Row("probabilities as logits", nothing, f"{NPZ} --outputs logits", r"--outputs probabilities"),
    Row(
        "unknown setting", put_study(models={"m": {"onnx": "model.onnx", "rnge": "0-1"}}), "run study.yaml", r"'range'"
    ),
    Row(
        "setting of another type",
        put_study(models={"m": {"onnx": "model.onnx", "range": 5}}),
        "run study.yaml",
        r"range",
    ),
    Row(
        "layout is a list", put_study(models={"m": {"onnx": "model.onnx", "layout": [1]}}), "run study.yaml", r"layout"
    ),
    Row(
        "threads is text", put_study(models={"m": {"onnx": "model.onnx", "threads": "x"}}), "run study.yaml", r"threads"
    ),
    Row("path is a number", put_study(models={"m": {"onnx": 5}}), "run study.yaml", r"onnx"),
    Row("unknown kind of model", put_study(models={"m": {"onx": "model.onnx"}}), "run study.yaml", r"mean 'onnx'"),
    Row("model of two kinds", put_study(models={"m": {"onnx": "a", "torch": "b"}}), "run study.yaml", r"one kind"),
    Row("model of no kind", put_study(models={"m": {}}), "run study.yaml", r"unknown kind of model"),
    Row("NUL in the path", put_study(models={"m": "a\0b.onnx"}), "run study.yaml", r"a.*b\.onnx"),
    Row("path too long", nothing, f"{MODEL} {'x' * 5000}.onnx", r"x\.onnx"),
    Row("text as torch", put("m.pt", "hello"), f"{MODEL} m.pt", r"m\.pt is not a torch file"),
    Row("empty torch file", put("m.pt", b""), f"{MODEL} m.pt", r"m\.pt is empty"),
    Row("zip as torch", put("m.pt", b"PK\x05\x06" + bytes(18)), f"{MODEL} m.pt", r"m\.pt"),
    Row("code in a pickle", put("m.pth", pickle.dumps(_Command(), 2)), f"{MODEL} m.pth", r"m\.pth.*(pickle|corrupt)"),
    Row("device that is not there", nothing, f"{NPZ} --device cuda", r"no CUDA"),
    Row("unknown device", nothing, f"{NPZ} --device gpu", r"unknown device 'gpu'"),
]

FUNCTIONS = [
    Row("code without trust", put_model("return 1"), f"{MODEL} model.py:answer", r"model\.py.*--trust"),
    Row("no such file of code", nothing, f"{MODEL} no.py:answer --trust", r"no Python file no\.py"),
    Row("no such function", put_model("return 1"), f"{MODEL} model.py:anwser --trust", r"no 'anwser'; it has: answer"),
    Row("syntax error", put("model.py", "def answer(:"), CODE, r"cannot import model\.py: SyntaxError"),
    Row("binary as code", put("model.py", b"\0\xff"), CODE, r"cannot import model\.py"),
    Row("code that leaves", put("model.py", "import sys\nsys.exit(0)"), CODE, r"cannot import model\.py: SystemExit"),
    Row("not a function", put("model.py", "answer = 5"), CODE, r"model\.py:answer is int, not a function"),
    Row("raises", put_model("raise RuntimeError('out of\\ncheese')"), CODE, r"out of"),
    Row("leaves", put_model("raise SystemExit(0)"), CODE, r"called sys\.exit"),
    Row("returns nothing", put_model("return None"), CODE, r"model"),
    Row("returns text", put_model("return ['a'] * len(images)"), CODE, r"model"),
    Row("returns ragged rows", put_model("return [[1], [1, 2]]"), CODE, r"model"),
    Row("wrong number of rows", put_model("return np.full((3, 3), 1 / 3)"), CODE, r"one row of class scores per image"),
    Row("one column", put_model("return np.ones((len(images), 1))"), CODE, r"at least two"),
    Row("wrong class count", put_model("return np.full((len(images), 5), .2)"), CODE, r"5 classes, but .* has 3"),
    Row("function of NaN", put_model("return np.full((len(images), 3), np.nan)"), CODE, r"NaN"),
    Row("function of logits", put_model("return np.ones((len(images), 3))"), CODE, r"--outputs logits|probabilities"),
    Row("complex numbers", put_model("return np.full((len(images), 3), 1j)"), CODE, r"model"),
]

STORED = [
    Row("answers without id", put("p.csv", "a,b\n1,0\n"), f"{MODEL} p.csv", r"p\.csv has no column 'id'"),
    Row("empty file of answers", put("p.csv", ""), f"{MODEL} p.csv", r"p\.csv"),
    Row("no answers", put("p.csv", "id,red,green,blue\n"), f"{MODEL} p.csv", r"p\.csv holds no answers"),
    Row("answers of text", put("p.csv", "id,red,green,blue\n0,a,b,c\n"), f"{MODEL} p.csv", r"p\.csv"),
    Row("answers of NaN", put("p.csv", "id,red,green,blue\n0,nan,1,0\n"), f"{MODEL} p.csv", r"p\.csv holds NaN"),
    Row("answers with a gap", put("p.csv", "id,red,green,blue\n0,,1,0\n"), f"{MODEL} p.csv", r"p\.csv"),
    Row("answers twice", put("p.csv", PREDICTIONS + "3,1,0,0\n"), f"{MODEL} p.csv", r"p\.csv answers 1 images more"),
    Row("answers missing", put("p.csv", PREDICTIONS[:60]), f"{MODEL} p.csv", r"p\.csv"),
    Row("answers to undisturbed data alone", nothing, f"{MODEL} predictions.csv", r"no column 'stimulus'"),
    Row("answers that sum to 2", put("p.csv", PREDICTIONS + "x,1,1,0\n"), f"{MODEL} p.csv", r"summing to 1"),
    Row("answers not UTF-8", put("p.csv", b"id,red,green,blue\n\xff,1,0,0\n"), f"{MODEL} p.csv", r"p\.csv"),
    Row("answers in broken parquet", put("p.parquet", "PAR1"), f"{MODEL} p.parquet", r"p\.parquet"),
    Row("folder without answers", folder_at("answers"), f"{MODEL} answers", r"answers holds no \.csv"),
    Row("answers of other classes", put("p.csv", PREDICTIONS.replace("red", "rad")), f"{MODEL} p.csv", r"'red'"),
]

STUDIES = [
    Row("no study", nothing, "run nowhere.yaml", r"cannot read study nowhere\.yaml"),
    Row("study is a folder", folder_at("s"), "run s", r"\bs\b.*(directory|not a file)"),
    Row("study is a pipe", fifo_at("s.yaml"), "run s.yaml", r"s\.yaml"),
    Row("study without end", nothing, "run /dev/zero", r"/dev/zero"),
    Row("study is empty", put("s.yaml", ""), "run s.yaml", r"s\.yaml must be a mapping"),
    Row("study is a list", put("s.yaml", "[1, 2]"), "run s.yaml", r"s\.yaml must be a mapping"),
    Row("study of two documents", put("s.yaml", "a: 1\n---\nb: 2\n"), "run s.yaml", r"s\.yaml is not valid YAML"),
    Row("study not YAML", put("s.yaml", "a: [1, 2"), "run s.yaml", r"s\.yaml is not valid YAML"),
    Row("study with NUL", put("s.yaml", b"name: a\0b\n"), "run s.yaml", r"s\.yaml is not valid YAML"),
    Row("study binary", put("s.yaml", bytes(range(256))), "run s.yaml", r"s\.yaml is not valid YAML"),
    Row("study too large", put("s.yaml", b"#" * (5 * 2**20)), "run s.yaml", r"s\.yaml has more than"),
    Row("billion laughs", put("s.yaml", LAUGHS), "run s.yaml", r"aliases"),
    Row("a link to itself in YAML", put("s.yaml", "a: &a [*a]\n"), "run s.yaml", r"aliases"),
    Row(
        "python tag", put("s.yaml", "!!python/object/apply:os.system ['touch hacked']"), "run s.yaml", r"python/object"
    ),
    Row("python name tag", put("s.yaml", "name: !!python/name:os.system"), "run s.yaml", r"python/name"),
    Row("tag without a value", put("s.yaml", "seed: !!int ''"), "run s.yaml", r"s\.yaml"),
    Row("deep nesting", put("s.yaml", "a: " + "[" * 20_000 + "]" * 20_000), "run s.yaml", r"s\.yaml"),
    Row("key twice", put("s.yaml", "name: a\nname: b\n"), "run s.yaml", r"'name' is used twice"),
    Row("key that is a list", put("s.yaml", "? [a, b]\n: c\n"), "run s.yaml", r"s\.yaml"),
    Row("key that is a number", put("s.yaml", "1: 2\n"), "run s.yaml", r"s\.yaml"),
    Row("unknown key", put_study(modles={}), "run study.yaml", r"unknown key 'modles': did you mean 'models'"),
    Row("unknown protocol", put_study(protocols={"clasification": {}}), "run study.yaml", r"mean 'classification'"),
    Row("unknown key below", put_study(protocols={"classification": {"levls": [1]}}), "run study.yaml", r"'levels'"),
    Row("no models", put_study(models={}), "run study.yaml", r"models"),
    Row("no test data", put_study(data={}), "run study.yaml", r"data\.test"),
    Row(
        "unknown shift", put_study(protocols={"classification": {"shifts": ["fogg"]}}), "run study.yaml", r"mean 'fog'"
    ),
    Row("unknown level", put_study(protocols={"classification": {"levels": [9]}}), "run study.yaml", r"levels.*not 9"),
    Row("level twice", put_study(protocols={"classification": {"levels": [1, 1]}}), "run study.yaml", r"twice"),
    Row("no levels", put_study(protocols={"classification": {"levels": []}}), "run study.yaml", r"levels"),
    Row("no repeats", put_study(protocols={"classification": {"repeats": 0}}), "run study.yaml", r"repeats"),
    Row(
        "unknown parameter of a shift",
        put_study(protocols={"classification": {"shifts": [{"name": "fog", "levels": {1: {"strenth": 1}}}]}}),
        "run study.yaml",
        r"fog has no parameter",
    ),
    Row(
        "parameter of another type",
        put_study(protocols={"classification": {"shifts": [{"name": "fog", "levels": {1: {"factor": "x"}}}]}}),
        "run study.yaml",
        r"fog",
    ),
    Row("seed negative", put_study(seed=-1), "run study.yaml", r"seed"),
    Row("seed too large", put_study(seed=2**63), "run study.yaml", r"seed"),
    Row("seed is text", put_study(seed="x"), "run study.yaml", r"seed"),
    Row("batch of none", put_study(batch=0), "run study.yaml", r"batch"),
    Row("size in study", put_study(size="0x8"), "run study.yaml", r"size '0x8'"),
    Row("name leads elsewhere", put_study(name="../../evil"), "run study.yaml", r"'../../evil' is not a valid name"),
    Row("name is a path", put_study(name="/proc/evil"), "run study.yaml", r"'/proc/evil' is not a valid name"),
    Row("study name with a newline", put_study(name="a\nb"), "run study.yaml", r"'a\\nb' is not a valid name"),
    Row(
        "model name with a newline",
        put_study(models={"a\nb": "model.onnx"}),
        "run study.yaml",
        r"'a\\nb' is not a valid name",
    ),
    Row("criteria file missing", remove("criteria.yaml"), "run study.yaml", r"criteria\.yaml"),
    Row("export to a folder in use", nothing, "export study.yaml signs", r"signs exists and is not empty"),
    Row("export of a broken study", put("s.yaml", "a: b"), "export s.yaml out", r"s\.yaml"),
    Row(
        "export of an unknown shift",
        put_study(protocols={"classification": {"shifts": ["x"]}}),
        "export study.yaml o",
        r"shift 'x'",
    ),
    Row("export to a place below a file", nothing, "export study.yaml model.onnx/o", r"model\.onnx/o"),
]

CRITERIA_FILES = [
    Row("no criteria", nothing, "verdict run --criteria no.yaml", r"no\.yaml"),
    Row("criteria empty", put("c.yaml", ""), JUDGE, r"c\.yaml must be a list"),
    Row("criteria is text", put("c.yaml", "hello"), JUDGE, r"c\.yaml must be a list"),
    Row("criterion is text", put("c.yaml", "[hello]"), JUDGE, r"c\.yaml, criterion 1"),
    Row("criteria python tag", put("c.yaml", "- !!python/object:os.x {}"), JUDGE, r"c\.yaml is not valid YAML"),
    Row("unknown metric", put_criteria(metric="acuracy"), JUDGE, r"mean 'accuracy'"),
    Row("unknown key of a criterion", put_criteria(atleast=1), JUDGE, r"mean 'at_least'"),
    Row("no threshold", put_criteria(at_least=None), JUDGE, r"exactly one of at_least and at_most"),
    Row("two thresholds", put_criteria(at_most=1), JUDGE, r"exactly one of at_least and at_most"),
    Row("threshold NaN", put_criteria(at_least=float("nan")), JUDGE, r"at_least"),
    Row("threshold is text", put_criteria(at_least="high"), JUDGE, r"at_least"),
    Row("confidence of 1", put_criteria(confidence=1), JUDGE, r"confidence"),
    Row("groups of none", put_criteria(min_groups=0), JUDGE, r"min_groups"),
    Row("unknown condition", put_criteria(where={"shfit": "fog"}), JUDGE, r"mean 'shift'"),
    Row("a shift that was not run", put_criteria(where={"shift": "fog"}), JUDGE, r"criterion A asks for shift 'fog'"),
    Row("a level of another type", put_criteria(where={"level": {"a": 1}}), JUDGE, r"criterion A asks for level"),
    Row("over what", put_criteria(over="al"), JUDGE, r"over"),
    Row("id twice", put("c.yaml", json.dumps(CRITERIA * 2)), JUDGE, r"id 'A' is used more than once"),
    Row(
        "criteria that match nothing yet",
        put_criteria(where={"shift": "x"}),
        f"{NPZ} --criteria c.yaml",
        r"criterion A",
    ),
    Row("junit below a file", nothing, "verdict run --junit model.onnx/j.xml", r"cannot write model\.onnx/j\.xml"),
]

RUNS = [
    Row("no run", nothing, "report nowhere", r"nowhere is no run"),
    Row("a run that is none", nothing, "verify signs", r"signs is no run"),
    Row("newer schema", edit_record(lambda r: r.update(schema=99)), "report run", r"run schema 99"),
    Row("no schema", edit_record(lambda r: r.pop("schema")), "verify run", r"run schema"),
    Row("record is no JSON", put("run/run.json", "{"), "report run", r"run/run\.json cannot be read"),
    Row("record is a list", put("run/run.json", "[]"), "verdict run", r"run schema None"),
    Row("record binary", put("run/run.json", b"\xff\xfe"), "verify run", r"run/run\.json"),
    Row("record nested too deep", put("run/run.json", "[" * 10**5), "verify run", r"run/run\.json"),
    Row("record without cases", edit_record(lambda r: r.pop("cases")), "verdict run", r"run/run\.json.*cases"),
    Row("record without data", edit_record(lambda r: r.pop("sources")), "verdict run", r"run/run\.json.*sources"),
    Row("record without files", edit_record(lambda r: r.pop("files")), "verify run", r"run/run\.json.*files"),
    Row("record with odd cases", edit_record(lambda r: r.update(cases=[5])), "verdict run", r"run/run\.json.*cases"),
    Row(
        "record that asks for a case which is not listed",
        edit_record(lambda r: r["protocols"]["classification"]["sources"][""]["cases"][0].update(case="f00")),
        "verdict run",
        r"run/run\.json.*classification asks for the case 'f00', which is not listed",
    ),
    Row(
        "record with an odd context",
        edit_record(lambda r: r["protocols"]["classification"]["sources"][""]["context"].update(strange=1)),
        "verdict run",
        r"run/run\.json was changed or is incomplete: context of classification: unknown key 'strange'",
    ),
    Row(
        "record with odd settings",
        edit_record(lambda r: r["protocols"]["classification"]["settings"].update(levels=[])),
        "verdict run",
        r"run\.json was changed or is incomplete: settings of classification: levels: ",
    ),
    Row("record with odd data", edit_record(lambda r: r.update(sources=[])), "report run", r"run/run\.json.*sources"),
    Row(
        "readouts missing", lambda f: shutil.rmtree(f / "run/readouts"), "verdict run", r"readouts in .* cannot be read"
    ),
    Row("readouts damaged", in_first_case("part-00000.parquet", "x"), "verdict run", r"readouts in .* cannot be read"),
    Row("manifest damaged", in_first_case("manifest.json", "[]"), "verdict run", r"readouts in .* cannot be read"),
    Row("manifest of text", in_first_case("manifest.json", '{"parts": 5}'), "verdict run", r"readouts in .* cannot"),
    Row("table missing", remove("run/tables/classification.parquet"), "report run", r"classification"),
    Row("table damaged", put("run/tables/classification.parquet", "x"), "report run", r"classification\.parquet"),
    Row("verdict damaged", put("run/verdict.json", "x"), "report run", r"verdict\.json"),
    Row("out is a file", nothing, f"{NPZ} --out model.onnx", r"model\.onnx is a file"),
    Row("out is in use", nothing, f"{NPZ} --out signs", r"signs is not empty and holds no run"),
    Row("out is below a file", nothing, f"{NPZ} --out model.onnx/run", r"cannot write to model\.onnx/run"),
    Row("out is no disk", nothing, f"{NPZ} --out /proc/run", r"cannot write to /proc/run"),
    Row("out is a link to itself", link("loop", "loop"), f"{NPZ} --out loop", r"loop"),
    Row("out of a newer run", edit_record(lambda r: r.update(schema=99)), f"{NPZ} --out run", r"run schema 99"),
    Row("preview below a file", nothing, "preview fog --data data.npz --out model.onnx/p.png", r"cannot write model"),
    Row("preview over a pipe", fifo_at("p"), "preview fog --data data.npz --out p", r"cannot write p: something that"),
    Row("junit on a full disk", nothing, "verdict run --junit /dev/full", r"cannot write /dev/full: No space left"),
    Row("preview to a folder", nothing, "preview fog --data data.npz --out signs", r"signs"),
]

WORDS = [
    Row("unknown command", nothing, "evalute", r"'evalute'.*evaluate"),
    Row("unknown option", nothing, f"{NPZ} --critera c.yaml", r"--critera.*--criteria"),
    Row("option without a value", nothing, f"{NPZ} --out", r"--out"),
    Row("no model given", nothing, "evaluate --data data.npz", r"--model"),
    Row("no study given", nothing, "run", r"(?i)study"),
    Row("one word too many", nothing, "report run run", r"run"),
    Row("unknown list", nothing, "list shift", r"'shift'.*shifts"),
    Row("unknown engine", nothing, "run study.yaml --engine rya", r"'rya'"),
    Row("unknown suite", nothing, f"{MODEL} model.onnx --suite quik", r"mean 'quick'"),
    Row("unknown suite version", nothing, f"{MODEL} model.onnx --suite quick@9", r"unknown suite 'quick@9'"),
    Row("unknown shift to preview", nothing, "preview snwo", r"mean 'snow'"),
    Row("unknown choice", nothing, f"{NPZ} --on-bad-image skp", r"'skp'"),
    Row("no workers", nothing, f"{NPZ} --workers 0", r"--workers"),
    Row("workers in words", nothing, f"{NPZ} --workers two", r"--workers.*integer"),
    Row("seed below zero", nothing, f"{NPZ} --seed -1", r"--seed"),
    Row("seed beyond", nothing, f"{NPZ} --seed 9223372036854775808", r"--seed"),
    Row("no sample", nothing, "check --model model.onnx --data data.npz --sample 0", r"--sample"),
    Row("too many rows", nothing, "preview fog --images 65", r"--images"),
    Row("size of nothing", nothing, f"{NPZ} --size 0x8", r"size '0x8'"),
    Row("size below zero", nothing, f"{NPZ} --size=-8x8", r"size '-8x8'"),
    Row("size huge", nothing, f"{NPZ} --size 99999x99999", r"size '99999x99999'"),
    Row(
        "size beyond memory",
        put_model("return np.full((len(images), 3), 1 / 3)"),
        f"{CODE} --size 16384x16384",
        r"16384x16384.*memory",
    ),
    Row("size in words", nothing, f"{NPZ} --size big", r"size 'big'"),
    Row("range in words", nothing, f"{NPZ} --range 0..1", r"range '0\.\.1'"),
    Row("range of NaN", nothing, f"{NPZ} --range nan/1", r"range 'nan/1'"),
    Row("range without spread", nothing, f"{NPZ} --range 0.5/0", r"range '0\.5/0'"),
    Row("unknown layout", nothing, f"{NPZ} --layout chwn", r"layout 'chwn'"),
    Row("unknown outputs", nothing, f"{NPZ} --outputs logit", r"outputs 'logit'"),
    Row("unknown colour", nothing, f"{NPZ} --colour rbg", r"colour order 'rbg'"),
    Row("name with a newline", nothing, f"{NPZ} --name 'a\nb'", r"is not a valid name"),
    Row("name that leads elsewhere", nothing, f"{NPZ} --name ../../evil", r"'../../evil' is not a valid name"),
    Row("empty model", nothing, "evaluate --model '' --data data.npz", r"model"),
    Row("levels without a shift", put("l.yaml", "{}"), "preview --levels l.yaml", r"--levels needs"),
    Row("levels is a list", put("l.yaml", "[1]"), "preview fog --data data.npz --levels l.yaml", r"levels"),
    Row("levels of text", put("l.yaml", "{a: b}"), "preview fog --data data.npz --levels l.yaml", r"levels"),
    Row("levels empty", put("l.yaml", ""), "preview fog --data data.npz --levels l.yaml", r"levels"),
    Row("level 0", put("l.yaml", "{0: {factor: 0.1}}"), "preview fog --data data.npz --levels l.yaml", r"must look"),
]

ROWS = [
    *IMAGES, *FOLDERS, *CLASS_FILES, *TABLES, *ARRAYS, *MODELS, *FUNCTIONS, *STORED, *STUDIES, *CRITERIA_FILES, *RUNS,
    *WORDS,
]  # fmt: skip


@pytest.fixture(scope="module")
def pantry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid files of every kind and a finished run, made once and copied for every row."""
    from roadworthy.api import run_study

    folder = fill(tmp_path_factory.mktemp("pantry"))
    run_study(folder / "study.yaml", out=folder / "run")
    return folder


@pytest.fixture
def kitchen(pantry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are run in; nothing lies above it but an empty folder."""
    folder = tmp_path / "above" / "kitchen"
    shutil.copytree(pantry, folder, ignore=shutil.ignore_patterns("run"), copy_function=shutil.copyfile)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("roadworthy.models.base.PROBE_SIZES", ((8, 8), (16, 16)))  # sixteen sizes take a second
    return folder


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_one_sentence_and_nothing_changed(
    row: Row, pantry: Path, kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if re.search(r"\brun\b", row.words.removeprefix("run ")):
        shutil.copytree(pantry / "run", kitchen / "run")
    row.make(kitchen)
    before = snapshot(kitchen.parents[1])
    code, _, said = call_main(row.words, monkeypatch, capfd)
    check_sentence(said, row.says)
    assert code == 2
    after = snapshot(kitchen.parents[1])
    assert after.keys() - before.keys() == set(), "something was added"
    assert [name for name in before if after.get(name) != before[name]] == [], "something was changed or removed"


SUBPROCESS = ["unknown option", "bomb"]


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in SUBPROCESS], ids=lambda row: row.name)
def test_the_same_in_a_process_of_its_own(row: Row, kitchen: Path) -> None:
    row.make(kitchen)
    before = snapshot(kitchen.parents[1])
    command = [sys.executable, "-m", "roadworthy.cli", *shlex.split(row.words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    check_sentence(done.stderr, row.says)
    assert done.returncode == 2
    assert done.stdout == ""
    assert snapshot(kitchen.parents[1]) == before


def test_the_table_is_whole() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names) >= 60
    assert set(SUBPROCESS) <= set(names)


def test_what_looks_odd_but_is_fine(
    kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """CMYK becomes RGB; a link back to a folder above, a pipe and a hidden file are left out and noted."""
    from roadworthy.data import open_dataset

    put("signs/red/cmyk.jpg", picture("JPEG", "CMYK", quality=95))(kitchen)
    link("signs/red/again", "..")(kitchen)
    fifo_at("signs/red/pipe.png")(kitchen)
    put("signs/red/.hidden", "x")(kitchen)
    data = open_dataset("signs")
    assert len(data) == 13
    assert any("1 hidden, 1 link to a folder above, 1 neither file nor folder" in note for note in data.notes)
    converted = data.batch([data.ids.index("red/cmyk.jpg")]).images[0].astype(int)
    assert np.abs(converted - squares()[0][0]).mean() < 12
    assert call_main("check --model model.onnx --data signs", monkeypatch, capfd)[0] == 0


def test_a_corrupt_image_can_be_skipped_and_is_recorded(
    kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil_png(kitchen)
    code, _, said = call_main(f"{FOLDER} --on-bad-image skip --accept-chance --out out", monkeypatch, capfd)
    assert (code, said) == (0, "")
    (bad,) = json.loads(Path("out/run.json").read_text())["sources"][""]["data"]["bad_images"]
    assert bad[0] == "red/0.png"
    assert "checksum" in bad[1]
    assert "red/0.png" in Path("out/report.html").read_text()


FAILING = {
    "raises": "raise RuntimeError('lamp <b>lost</b>\\nmore')",
    "leaves": "raise SystemExit(3)",
    "rows": "return np.full((len(images) - 1, 3), 1 / 3)",
    "nan": "answers[0] = np.nan",
    "infinite": "answers[:] = np.inf",
    "logits": "answers *= 7",
}


def test_a_failure_in_one_case_is_recorded_and_the_others_go_on(
    kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Models that fail on grey images alone: the run ends, and record, tables, verdict and report say what failed."""
    for name, body in FAILING.items():
        put(
            f"{name}.py",
            "import numpy as np\n"
            "def answer(images):\n"
            "    answers = np.full((len(images), 3), 1 / 3)\n"
            "    grey = np.ptp(images, axis=3).max() < 8 and images.std() > 1 and images.shape[1] == 8\n"
            f"    if grey:\n        {body}\n"
            "    return answers\n",
        )(kitchen)
    models: dict[str, Any] = {
        name: {"callable": f"{name}.py:answer", "num_classes": 3, "size": [8, 8]} for name in FAILING
    }
    grey = {"id": "GREY", "metric": "accuracy", "where": {"shift": "grey", "level": 5}, "at_least": 0.01}
    settings = {"classification": {"shifts": [{"name": "grey", "levels": {1: {"factor": 0.1}, 5: {"factor": 1.0}}}]}}
    put_study(models={"good": "model.onnx", **models}, criteria=[grey], protocols=settings)(kitchen)
    code, printed, said = call_main("run study.yaml --out out --trust --accept-chance", monkeypatch, capfd)
    assert code == 3, said
    assert "Verdict: inconclusive" in printed
    assert {line.split(":")[1].strip() for line in said.splitlines()} == {f"{name} at grey 5" for name in FAILING}
    record = json.loads(Path("out/run.json").read_text())
    failed = {case["system"]: case["reason"] for case in record["cases"].values() if case["status"] == "failed"}
    assert failed.keys() == FAILING.keys()
    wanted = ("lamp", "sys.exit", "(63, 3)", "NaN or infinity", "NaN or infinity", "logits")
    for name, part in zip(FAILING, wanted, strict=True):
        assert part in failed[name]
        assert "\n" not in failed[name]
    table = pd.read_parquet("out/tables/classification.parquet").query("metric == 'accuracy'")
    table = table.set_index(["model", "shift", "level"])
    assert table.loc[("good", "grey", 5), "value"] >= 0
    for name in FAILING:
        assert table.loc[(name, "none", 0), "value"] >= 0
        if (name, "grey", 5) in table.index:
            assert np.isnan(table.loc[(name, "grey", 5), "value"])
    report = Path("out/report.html").read_text()
    assert "lamp &lt;b&gt;lost" in report
    assert "lamp <b>" not in report
    assert call_main("verify out", monkeypatch, capfd)[0] == 0


class Elements(HTMLParser):
    """The elements of a page by name, each with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_hostile_names_are_shown_as_text(
    kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Markup, quotes and line breaks in class, file, model and criterion names do nothing in report and JUnit."""
    hostile = ["<img src=x onerror=alert(1)>", "\"quoted' & ${7*7} {{7*7}}", "two\nlines"]
    for old, new in zip(("red", "green", "blue"), hostile, strict=True):
        (kitchen / "signs" / old).rename(kitchen / "signs" / new)
    Path(f"signs/{hostile[0]}/0.png").rename(f"signs/{hostile[0]}/a\nb<svg onload=alert(2)>'\".png")
    name = "</script><script>alert(3)</script>"
    criteria = [{"id": f"<b>{name}", "hazard": "<iframe src=y>", "metric": "accuracy", "at_least": 0.9}]
    put_study(data={"test": "signs"}, models={name: "model.onnx"}, criteria=criteria)(kitchen)
    code, _, said = call_main("run study.yaml --out out --accept-chance", monkeypatch, capfd)
    assert code in (1, 3), said
    report = Path("out/report.html").read_text()
    page = Elements()
    page.feed(report)
    kinds = [kind for kind, _ in page.found]
    assert "iframe" not in kinds
    assert not any("onerror" in values or "onload" in values for _, values in page.found)
    assert "<script>alert(3)" not in report
    assert "&lt;img src=x onerror=alert(1)&gt;" in report
    assert "49 {" not in report
    assert call_main("verdict out --junit out.xml", monkeypatch, capfd)[0] == code
    case = ElementTree.parse("out.xml").find(".//testcase")
    assert case is not None
    assert name in str(case.attrib)
    assert call_main("verify out", monkeypatch, capfd)[0] == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES], ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_written(
    number: int, kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*words: Any, **more: Any) -> None:
        raise OSError(number, os.strerror(number))

    before = snapshot(kitchen)
    for words in (f"{NPZ} --out out", "export study.yaml out"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "mkdir", refuse)
            code, _, said = call_main(words, patch, capfd)
        assert code == 2
        check_sentence(said, f"cannot write to out: {os.strerror(number)}")
        assert snapshot(kitchen) == before


@pytest.mark.parametrize("writes", [1, 9])
def test_a_disk_that_fills_up_while_a_run_is_extended(
    writes: int, pantry: Path, kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One sentence; what was stored before is still there, byte by byte; the same command then goes on to the end."""
    shutil.copytree(pantry / "run", kitchen / "run")
    put_study(protocols={"classification": {"shifts": ["grey"], "levels": [1, 3, 5]}})(kitchen)
    before = snapshot(kitchen / "run" / "readouts")
    count = itertools.count(1)
    sync = os.fsync

    def fill_up(file: int) -> None:
        if next(count) >= writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        code, _, said = call_main("run study.yaml --out run --workers 1", patch, capfd)
    assert code == 2
    check_sentence(said, r"cannot write to run: No space left on device; fix that and run again to resume")
    after = snapshot(kitchen / "run" / "readouts")
    assert {name: after.get(name) for name in before} == before
    assert not list((kitchen / "run").rglob("*.tmp"))
    assert call_main("run study.yaml --out run", monkeypatch, capfd)[0] == 0
    assert call_main("verify run", monkeypatch, capfd)[0] == 0


def test_a_real_limit_on_the_size_of_files(kitchen: Path) -> None:
    """The kernel itself refuses: a report is larger than 100 kB."""
    program = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (10**5, 10**5)); import roadworthy.cli as c; c.main()"
    command = [sys.executable, "-c", program, "run", "study.yaml", "--out", "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    check_sentence(without_progress(done.stderr), r"cannot write to out: File too large; fix that")
    assert done.returncode == 2
    assert not list(Path("out").rglob("*.tmp"))


@pytest.mark.parametrize(("options", "says"), [("size=64k", "No space left"), ("size=64k,ro", "Read-only file system")])
def test_a_real_disk(
    options: str, says: str, kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = kitchen / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        code, _, said = call_main(f"{NPZ} --out disk/out", monkeypatch, capfd)
        assert code == 2
        check_sentence(said, f"cannot write to disk/out: {says}")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_second_writer_is_refused(
    pantry: Path, kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(pantry / "run", kitchen / "run")
    before = snapshot(kitchen)
    with (kitchen / "run" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in ("run study.yaml --out run", "report run"):
            code, _, said = call_main(words, monkeypatch, capfd)
            assert code == 2
            check_sentence(said, "another process is writing to run")
    assert snapshot(kitchen) == before


def test_a_tampered_run_cannot_reach_outside(
    pantry: Path, kitchen: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A manifest that names a file outside as its damaged part: the file stays, and the case is made anew."""
    shutil.copytree(pantry / "run", kitchen / "run")
    put("precious.txt", "keep me")(kitchen)
    in_first_case("manifest.json", json.dumps({"parts": {"../../../../precious.txt": "0" * 64}}))(kitchen)
    assert call_main("run study.yaml --out run", monkeypatch, capfd)[0] == 0
    assert Path("precious.txt").read_text() == "keep me"
    assert call_main("verify run", monkeypatch, capfd)[0] == 0
