"""Fuzzing: whatever bytes come, a loader or parser works or raises one clear sentence, in time, and writes nothing.

The usual suite tries a few hundred inputs; `make fuzz` tries 20,000, or as many as ROADWORTHY_FUZZ says.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from PIL import Image

from roadworthy.api import Run, prepare
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.validation import parse_size, read_classes
from roadworthy.data import open_dataset
from roadworthy.data.images import decode, decode_mask, image_size
from roadworthy.models import OnnxModel, StoredPredictions
from roadworthy.models.preprocess import parse_range
from roadworthy.study import load_study
from roadworthy.verdict import load_criteria
from samples import CLASSES, CRITERIA, MANIFEST, PREDICTIONS, arrays, fill, network, picture, study

FEW = 300
MANY = int(os.environ.get("ROADWORTHY_FUZZ", 20_000))
CPU_SECONDS = 5
HANG_SECONDS = 120

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
STARTING = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class")


class _Watch:
    """An audit hook, which cannot be taken off again: it notes writes, programs and connections while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, words: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in CHANGING or event in STARTING or (event == "open" and (words[2] or 0) & WRITING):
            self.seen.append(f"{event} {words[0]!r}")


WATCH = _Watch()


def _stop(*_: object) -> None:
    raise AssertionError(f"no answer in {HANG_SECONDS} s")


@contextmanager
def lawful() -> Iterator[None]:
    """The law: success or a `RoadworthyError` of one line; little time; no write, no program, no warning."""
    old = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(HANG_SECONDS)
    started = time.process_time()
    WATCH.seen.clear()
    WATCH.on = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # as on the command line
            warnings.filterwarnings("ignore", category=ResourceWarning)
            yield
    except RoadworthyError as error:
        text = str(error)
        assert text.strip(), "an error without words"
        assert "\n" not in text, text
    finally:
        WATCH.on = False
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    assert not WATCH.seen, WATCH.seen
    assert time.process_time() - started < CPU_SECONDS, "too slow"


class Target(NamedTuple):
    """Something that reads what strangers write. `try_it` gets a folder of valid files and the input."""

    name: str
    share: float
    inputs: st.SearchStrategy[Any]
    try_it: Callable[[Path, Any], object]


EDITS = st.tuples(
    st.sampled_from(["put", "insert", "delete", "cut", "repeat"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(max_size=9),
)


def spoiled(*originals: bytes) -> st.SearchStrategy[bytes]:
    """A valid file with a few bytes changed, inserted, deleted or repeated, or its end cut off."""

    def spoil(original: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
        content = bytearray(original)
        for kind, where, some in edits:
            place = int(where * len(content))
            stop = place + max(1, len(some))
            if kind == "put":
                content[place : place + len(some)] = some
            elif kind == "insert":
                content[place:place] = some
            elif kind == "delete":
                del content[place:stop]
            elif kind == "cut":
                del content[place:]
            else:
                content[place:place] = content[place:stop] * 3
        return bytes(content)

    return st.builds(spoil, st.sampled_from(originals), st.lists(EDITS, min_size=1, max_size=5))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a nested value."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


ODD: list[Any] = [
    *(
        "",
        " ",
        ".",
        "..",
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "a\0b",
        "x" * 5000,
        "~nobody/x",
        "a\nb",
        "\udcff",
    ),
    *(
        "data.npz",
        "model.onnx",
        "manifest.csv",
        "signs",
        "predictions.csv",
        "classes.txt",
        "criteria.yaml",
        "grey",
        "fog",
    ),
    *("8x8", "0x0", "16384x16384", "auto", "logits", "accuracy", "builtin:signs", "onnx", "none", "each", "nan/1"),
    *(-1, 0, 1, 5, 2**31, 2**63, 2**70, -0.0, 0.5, 1e308, float("nan"), float("inf"), True, False, None),
]
SCALARS = st.one_of(st.sampled_from(ODD), st.integers(), st.floats(), st.text(max_size=12), st.dates(), st.booleans())
STUDY = study(
    seed=3,
    size="8x8",
    batch=4,
    data={"test": {"npz": "data.npz", "limit": 9}, "classes": "classes.txt"},
    models={"m": {"onnx": "model.onnx", "range": "0-1", "layout": "nchw"}, "n": "logits.onnx"},
    protocols={"classification": {"shifts": ["grey", {"name": "fog", "levels": {1: {"factor": 0.1}}}], "repeats": 1}},
    criteria=CRITERIA,
)
CRITERION = {**CRITERIA[0], "over": "worst", "confidence": 0.9, "min_groups": 3, "hazard": "x"}
KNOWN = sorted({step for path in places([STUDY, CRITERION]) for step in path if isinstance(step, str)})
KEYS = st.one_of(st.sampled_from(KNOWN), st.text(max_size=8), st.integers(0, 9))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The nested value with something else in one place."""
    if not path:
        return new
    step, *rest = path
    if isinstance(value, dict):
        return {**value, step: replaced(value[step], tuple(rest), new)}
    return [replaced(inner, tuple(rest), new) if place == step else inner for place, inner in enumerate(value)]


def changed(original: Any) -> st.SearchStrategy[Any]:
    """A valid nested value with a part replaced, or a key added."""
    spots = st.sampled_from(list(places(original)))

    def change(value: Any, path: tuple[Any, ...], new: Any, key: Any, add: bool) -> Any:
        found = value
        for step in path:
            found = found[step]
        return replaced(value, path, {**found, key: new} if add and isinstance(found, dict) else new)

    return st.builds(change, st.just(original), spots, VALUES, KEYS, st.booleans())


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


def as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, allow_unicode=True)


YAMLISH = st.text(alphabet="ab:-[]{},&*!|>%@`'\"#?\\ \n\t0.~<=_é\x85\ufeff", max_size=60)
TAGS = st.builds(
    lambda tag, value: f"name: !!{tag} {value}\n",
    st.sampled_from(
        ["int", "float", "bool", "null", "timestamp", "binary", "set", "omap", "pairs", "map", "seq", "str"]
    ),
    st.one_of(YAMLISH, st.sampled_from(["''", "{}", "[]", "2001-99-99", "1:99", "0b", "0x", "._", "[{a: b}]"])),
)


def try_study(folder: Path, content: bytes | str) -> None:
    path = write(folder, "s.yaml", content)
    with lawful():
        load_study(path)


def try_whole_study(folder: Path, value: Any) -> None:
    path = write(folder, "s.yaml", as_yaml(value))
    with lawful():
        loaded, base = load_study(path)
        prepare(loaded, base=base)


def try_criteria(folder: Path, value: Any) -> None:
    path = write(folder, "s.yaml", as_yaml(study(criteria=value) if isinstance(value, list) else value))
    with lawful():
        load_criteria(value if isinstance(value, list) else path)
        prepare(*load_study(path)[:1], base=folder)


def try_data(name: str) -> Callable[[Path, bytes | str], None]:
    """Open a data file whose content is given, and read all of it."""

    def try_it(folder: Path, content: bytes | str) -> None:
        path = write(folder, name, content)
        with lawful():
            data = open_dataset(path)
            data.fingerprint()
            data.batch(slice(0, 2))

    return try_it


def try_npz_arrays(folder: Path, members: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **members)
    try_data("d.npz")(folder, buffer.getvalue())


def try_image(folder: Path, content: bytes) -> None:
    for read in (decode, image_size, decode_mask):
        with lawful():
            read(content)


def try_classes(folder: Path, content: bytes | str) -> None:
    path = write(folder, "c.txt", content)
    with lawful():
        read_classes(path)
    with lawful():
        open_dataset(folder / "data.npz", classes=path)


def try_predictions(name: str) -> Callable[[Path, bytes | str], None]:
    def try_it(folder: Path, content: bytes | str) -> None:
        path = write(folder, name, content)
        with lawful():
            model = StoredPredictions(path)
            model.predict(open_dataset(folder / "data.npz").batch(slice(0, 2)))

    return try_it


def try_onnx(folder: Path, content: bytes) -> None:
    path = write(folder, "o.onnx", content)
    with lawful():
        OnnxModel(path)


def try_text(folder: Path, value: Any) -> None:
    with lawful():
        parse_size(value)
    if isinstance(value, str):
        with lawful():
            parse_range(value)


def try_record(folder: Path, change: tuple[float, Any]) -> None:
    """A run whose record was tampered with."""
    record = json.loads((folder / "run" / "run.json").read_text())
    spots = list(places({key: value for key, value in record.items() if key != "files"}))
    path = spots[int(change[0] * len(spots))]
    run = folder / "tampered"
    if not run.exists():
        shutil.copytree(folder / "run", run)
    write(run, "run.json", json.dumps(replaced(record, path, change[1]), default=str))
    with lawful():
        Run(run).verdict()


def parquet() -> bytes:
    import pandas as pd

    buffer = io.BytesIO()
    pd.read_csv(io.StringIO(PREDICTIONS)).astype({"id": str}).to_parquet(buffer)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays(group=np.arange(12), boxes=np.tile([0.0, 0, 4, 4], (12, 1))))
    return buffer.getvalue()


def with_checksums(header: bytes, rows: bytes, extra: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file of any header and pixels whose checksums are right."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)

    parts = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, content) for kind, content in parts)


PNG_HEADERS = st.builds(
    lambda width, height, rest: width.to_bytes(4) + height.to_bytes(4) + bytes(rest),
    st.sampled_from([0, 1, 2, 8, 300, 2**31 - 1, 2**32 - 1]),
    st.sampled_from([0, 1, 2, 8, 300, 2**31 - 1]),
    st.tuples(st.sampled_from([1, 2, 4, 8, 16, 7]), st.sampled_from([0, 2, 3, 4, 6, 5]), *[st.integers(0, 1)] * 3),
)
PNG_CHUNKS = st.lists(
    st.tuples(
        st.sampled_from(
            [b"PLTE", b"tRNS", b"gAMA", b"iCCP", b"zTXt", b"iTXt", b"tEXt", b"eXIf", b"acTL", b"fcTL", b"pHYs"]
        ),
        st.binary(max_size=40),
    ),
    max_size=3,
)
PICTURES = [
    *(picture(kind) for kind in ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF")),
    picture("PNG", "P"),
    picture("PNG", "LA"),
    picture("JPEG", "CMYK"),
    picture("TIFF", compression="tiff_lzw"),
    picture("JPEG", exif=Image.Exif().tobytes() + b"x"),
]
CELLS = st.one_of(
    st.sampled_from([str(value) for value in ODD if isinstance(value, str)]), st.text(max_size=6), st.integers()
)
MANIFESTS = st.builds(
    lambda header, rows: ",".join(header) + "\n" + "\n".join(",".join(map(str, row)) for row in rows),
    st.lists(
        st.sampled_from(["path", "label", "id", "group", "mask", "box", "x0", "y0", "x1", "y1", "rain", ""]), max_size=6
    ),
    st.lists(st.lists(st.one_of(CELLS, st.just("signs/red/0.png")), max_size=6), max_size=4),
)
DTYPES = st.one_of(
    arrays_of.scalar_dtypes(), arrays_of.unicode_string_dtypes(max_len=4), arrays_of.byte_string_dtypes(max_len=4)
)
ANY_ARRAY = DTYPES.flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
MEMBERS = st.builds(
    lambda valid, odd: {**{name: value for name, value in valid.items() if name not in odd}, **odd},
    st.just(arrays()),
    st.dictionaries(
        st.sampled_from(
            [
                "images",
                "labels",
                "class_names",
                "id",
                "boxes",
                "masks",
                "group",
                "track",
                "meta",
                "rain",
                "../evil",
                "a b",
            ]
        ),
        ANY_ARRAY,
        min_size=1,
        max_size=3,
    ),
)
SPOILED_MEMBER = st.builds(
    lambda name, content, method: _zipped(name, content, method),
    st.sampled_from(["images.npy", "labels.npy", "more.npy", "../../x.npy", "more", "é.npy"]),
    spoiled(*(io_bytes.getvalue() for io_bytes in [io.BytesIO()] if np.save(io_bytes, arrays()["images"]) is None)),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]),
)


def _zipped(name: str, content: bytes, method: int) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays(images=None, labels=None))
    with zipfile.ZipFile(buffer, "a", method) as archive:
        for member, array in (("images", arrays()["images"]), ("labels", arrays()["labels"])):
            if name != f"{member}.npy":
                saved = io.BytesIO()
                np.save(saved, array)
                archive.writestr(f"{member}.npy", saved.getvalue())
        archive.writestr(name, content)
    return buffer.getvalue()


def _network(edits: list[tuple[str, int, int]]) -> bytes:
    """The model with fields of its graph changed, so that it is still a file of the format."""
    model = network()
    graph = model.graph
    for kind, which, number in edits:
        node = graph.node[which % len(graph.node)]
        dims = graph.input[0].type.tensor_type.shape.dim
        weights = graph.initializer[which % len(graph.initializer)]
        if kind == "operator":
            node.op_type = ["Softmax", "Relu", "Reshape", "Identity", "MatMul", "Nope", "Conv", "Transpose"][number % 8]
        elif kind == "wire":
            node.input[0] = ["image", "pixels", "logits", "probabilities", "weights", "", "nowhere"][number % 7]
        elif kind == "side":
            dims[which % 4].dim_value = number
        elif kind == "type":
            graph.input[0].type.tensor_type.elem_type = number % 24
        elif kind == "weights":
            weights.dims[0] = number
        elif kind == "weight type":
            weights.data_type = number % 24
        elif kind == "node less":
            del graph.node[which % len(graph.node)]
            if not graph.node:
                break
        elif kind == "dimension less":
            del dims[which % 4 :]
            break
        elif kind == "output":
            graph.output[0].name = ["probabilities", "logits", "pixels", "image", "nowhere"][number % 5]
        elif kind == "opset":
            model.opset_import[0].version = number
        elif kind == "external":
            weights.data_location = onnx.TensorProto.EXTERNAL
            place = ["", ".", "..", "/etc/passwd", "model.onnx", "a\0b", "x" * 5000, "signs"][number % 8]
            weights.external_data.add(key="location", value=place)
    return model.SerializeToString()


NETWORK_EDITS = [
    *("operator", "wire", "side", "type", "weights", "weight type", "node less", "dimension less"),
    *("output", "opset", "external"),
]
NETWORKS = st.builds(
    _network,
    st.lists(
        st.tuples(
            st.sampled_from(NETWORK_EDITS),
            st.integers(0, 9),
            st.one_of(st.integers(-2, 40), st.sampled_from([2**20, 2**31, 2**40, -(2**40)])),
        ),
        min_size=1,
        max_size=3,
    ),
)

TEXTS = st.one_of(
    st.text(max_size=30), st.from_regex(r"\s*-?\d{1,12}\s*[xX/,-]?\s*-?\d{0,12}(\.\d+)?\s*", fullmatch=True)
)

TARGETS = [
    Target("study of bytes", 1, st.one_of(st.binary(max_size=80), spoiled(as_yaml(STUDY).encode())), try_study),
    Target("study of text", 2, st.one_of(YAMLISH, TAGS), try_study),
    Target("study of values", 2, st.one_of(VALUES, changed(STUDY)).map(as_yaml), try_study),
    Target("whole study", 2, changed(STUDY), try_whole_study),
    Target("criteria", 1, st.one_of(changed([CRITERION]), VALUES), try_criteria),
    Target("manifest of bytes", 1, spoiled(MANIFEST.encode()), try_data("m.csv")),
    Target("manifest", 1, MANIFESTS, try_data("m.csv")),
    Target("npz bytes", 1, spoiled(npz()), try_data("d.npz")),
    Target("npz member", 1, SPOILED_MEMBER, try_data("d.npz")),
    Target("npz arrays", 1, MEMBERS, try_npz_arrays),
    Target("image bytes", 3, spoiled(*PICTURES), try_image),
    Target(
        "png with checksums",
        1,
        st.builds(with_checksums, PNG_HEADERS, st.one_of(st.binary(max_size=200), st.just(bytes(3000))), PNG_CHUNKS),
        try_image,
    ),
    Target(
        "class file",
        1,
        st.one_of(st.binary(max_size=40), st.text(max_size=40), spoiled("\n".join(CLASSES).encode())),
        try_classes,
    ),
    Target("predictions", 1, spoiled(PREDICTIONS.encode()), try_predictions("p.csv")),
    Target("predictions in parquet", 0.5, spoiled(parquet()), try_predictions("p.parquet")),
    Target("onnx bytes", 1, spoiled(network().SerializeToString()), try_onnx),
    Target("onnx graph", 1, NETWORKS, try_onnx),
    Target("size and range", 1, st.one_of(TEXTS, SCALARS, st.lists(SCALARS, max_size=3)), try_text),
    Target("record of a run", 0.5, st.tuples(st.floats(0, 1, exclude_max=True), VALUES), try_record),
]
SHARES = sum(target.share for target in TARGETS)


@pytest.fixture(scope="module")
def pantry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from roadworthy.api import run_study

    folder = fill(tmp_path_factory.mktemp("fuzz"))
    run_study(folder / "study.yaml", out=folder / "run")
    return folder


def explore(target: Target, folder: Path, count: int, derandomize: bool) -> None:
    """Try so many inputs of a target."""
    tried = 0

    def check(value: Any) -> None:
        nonlocal tried
        tried += 1
        target.try_it(folder, value)

    options = settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=derandomize,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    options(given(target.inputs)(check))()
    assert tried >= count, "the inputs ran out"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_some_inputs(target: Target, pantry: Path) -> None:
    explore(target, pantry, max(5, round(FEW * target.share / SHARES)), derandomize=True)


@pytest.mark.fuzz
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_many_inputs(target: Target, pantry: Path) -> None:
    explore(target, pantry, -int(-MANY * target.share // SHARES), derandomize=False)


def test_the_watch_sees_what_is_forbidden(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"x\.txt"), lawful():
        (tmp_path / "x.txt").write_text("x")
    with pytest.raises(ZeroDivisionError), lawful():
        raise ZeroDivisionError
