"""Data as people have it, each kind from what its user holds in hand: opened in a line, labelled right, or refused."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image

import roadworthy as rw
from commands import call
from named_files import WRITERS
from roadworthy.core.errors import InputError
from roadworthy.data import DATA, OpenedDataset, spool
from roadworthy.evaluation import data_spec, in_memory
from samples import CLASSES, network, squares
from samples import study as sample_study

IMAGES, LABELS = squares()
SIGNS = (IMAGES, LABELS, CLASSES)


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def table(**more: Any) -> Any:
    """The squares as a `Dataset` of Hugging Face, with conditions and groups."""
    import datasets

    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    columns = {"image": [Image.fromarray(image) for image in IMAGES], "label": LABELS.tolist(), **more}
    kinds = {name: datasets.Value("string" if isinstance(column[0], str) else "int64") for name, column in more.items()}
    return datasets.Dataset.from_dict(columns, datasets.Features({**features, **kinds}))


class Squares(torch.utils.data.Dataset[Any]):
    """A torch data set whose items go through a transform."""

    classes = CLASSES

    def __init__(self, transform: Callable[[np.ndarray], Any] = Image.fromarray, label: Any = int) -> None:
        self.transform, self.label = transform, label

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, row: int) -> Any:
        if row >= len(IMAGES):
            raise IndexError(row)
        return self.transform(IMAGES[row]), self.label(LABELS[row])


def tensor(image: np.ndarray) -> torch.Tensor:
    """What ToTensor makes of a picture."""
    return torch.from_numpy(image.transpose(2, 0, 1).copy()).float().div(255)


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def sample_files(rows: Any, ending: str = "cls") -> dict[str, bytes]:
    labels: dict[str, Callable[[int], str]] = {
        "cls": lambda row: str(LABELS[row]),
        "txt": lambda row: CLASSES[LABELS[row]] + "\n",
        "json": lambda row: json.dumps({"label": int(LABELS[row]), "group": f"g{row // 2}", "rain": row % 3}),
    }
    return {
        name: content
        for row in rows
        for name, content in (
            (f"{row:04d}.png", png(IMAGES[row])),
            (f"{row:04d}.{ending}", labels[ending](row).encode()),
        )
    }


def shards(folder: Path, ending: str = "cls") -> Path:
    home = folder / "shards"
    home.mkdir()
    write_tar(home / "test-000.tar", sample_files(range(5), ending))
    write_tar(home / "test-001.tar", sample_files(range(5, 12), ending))
    return home


def parquet(path: Path, as_struct: bool = True, **more: list[Any]) -> Path:
    content = [png(image) for image in IMAGES]
    pictures = [{"bytes": data, "path": None} for data in content] if as_struct else content
    pq.write_table(pa.table({"image": pictures, "label": LABELS.tolist(), **more}), path)
    return path


def annotated_frames(folder: Path) -> Path:
    """Three frames with one, two and no object, annotated as COCO, VOC and YOLO."""
    names, boxes = ("one", "two", "none"), {"one": [(2, 3, 12, 13)], "two": [(0, 0, 8, 8), (10, 4, 20, 16)], "none": []}
    for path in ("images", "labels", "JPEGImages", "Annotations", "annotations"):
        (folder / path).mkdir(parents=True)
    coco: dict[str, Any] = {"categories": [{"id": 7, "name": "stop"}, {"id": 3, "name": "yield"}], "images": []}
    coco["annotations"] = []
    for number, name in enumerate(names):
        picture = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
        for home in ("images", "JPEGImages"):
            Image.fromarray(picture).save(folder / home / f"{name}.png")
        coco["images"].append({"id": number, "file_name": f"{name}.png", "width": 24, "height": 20})
        lines, elements = "", ""
        for x0, y0, x1, y1 in boxes[name]:
            kind = "stop" if x0 else "yield"
            box = {"bbox": [x0, y0, x1 - x0, y1 - y0], "category_id": 7 if x0 else 3, "image_id": number}
            coco["annotations"].append(box)
            centre = ((x0 + x1) / 48, (y0 + y1) / 40, (x1 - x0) / 24, (y1 - y0) / 20)
            lines += f"{1 if x0 else 0} {' '.join(map(str, centre))}\n"
            corners = f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
            elements += f"<object><name>{kind}</name><bndbox>{corners}</bndbox></object>"
        (folder / "labels" / f"{name}.txt").write_text(lines)
        size = "<size><width>24</width><height>20</height></size>"
        xml = f"<annotation><filename>{name}.png</filename>{size}{elements}</annotation>"
        (folder / "Annotations" / f"{name}.xml").write_text(xml)
    (folder / "classes.txt").write_text("yield\nstop\nunused\n")
    (folder / "annotations" / "instances_val2017.json").write_text(json.dumps(coco))
    return folder


# What is opened: the same squares, from whatever holds them


def saved(folder: Path) -> Path:
    table().save_to_disk(folder / "saved")
    return folder / "saved"


def saved_splits(folder: Path) -> Path:
    import datasets

    datasets.DatasetDict({"train": table().select([0]), "test": table()}).save_to_disk(folder / "splits")
    return folder / "splits"


def mapped_stream(_: Path) -> Any:
    """A stream that does not know its columns until it is read."""
    return {"huggingface": table().to_iterable_dataset().map(lambda row: row), "label": "label"}


def torch_stream(_: Path) -> Any:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(Squares())

        classes = CLASSES

    return Stream()


KINDS: dict[str, Callable[[Path], Any]] = {
    "huggingface-folder": saved,
    "huggingface-folder-of-splits": lambda folder: {"huggingface": str(saved_splits(folder)), "split": "test"},
    "huggingface-object": lambda _: table(),
    "huggingface-format": lambda _: table().with_format("torch"),
    "huggingface-stream": lambda _: table().to_iterable_dataset(),
    "huggingface-mapped-stream": mapped_stream,
    "torch-pillow": lambda _: Squares(),
    "torch-array": lambda _: Squares(np.asarray),
    "torch-channels-first": lambda _: Squares(lambda image: image.transpose(2, 0, 1)),
    "torch-tensor": lambda _: Squares(tensor, torch.tensor),
    "torch-float-array": lambda _: Squares(lambda image: image.astype(np.float32) / 255, np.int64),
    "torch-subset": lambda _: torch.utils.data.Subset(Squares(), range(12)),
    "torch-stream": torch_stream,
    "torch-names": lambda _: Squares(label=lambda label: CLASSES[label]),
    "webdataset-folder": shards,
    "webdataset-pattern": lambda folder: str(shards(folder) / "test-{000..001}.tar"),
    "webdataset-json": lambda folder: shards(folder, "json"),
    "webdataset-text": lambda folder: {"webdataset": str(shards(folder, "txt"))},
    "webdataset-file": lambda folder: write_tar(folder / "all.tar", sample_files(range(12))),
    "parquet-struct": lambda folder: parquet(folder / "data.parquet"),
    "parquet-binary": lambda folder: parquet(folder / "data.parquet", as_struct=False),
    "parquet-folder": lambda folder: {"parquet": str(parquet(folder / "data-0.parquet").parent)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_in_one_line(tmp_path: Path, kind: str) -> None:
    data = rw.open_dataset(KINDS[kind](tmp_path), classes=CLASSES)
    batch = data.batch(slice(None))
    assert np.array_equal(batch.images, IMAGES)
    assert batch.labels.tolist() == LABELS.tolist()
    assert data.class_names == CLASSES
    assert data.size == (8, 8)
    assert len(set(data.ids)) == 12
    again = rw.open_dataset(KINDS[kind](tmp_path / "copy"), classes=CLASSES) if not any(tmp_path.iterdir()) else data
    assert again.fingerprint() == data.fingerprint()


NAMED_CLASSES = ["huggingface-folder", "huggingface-object", "huggingface-stream", "torch-pillow", "torch-subset"]


@pytest.mark.parametrize("kind", [*NAMED_CLASSES, "webdataset-text"])
def test_class_names_come_with_the_data(tmp_path: Path, kind: str) -> None:
    names = rw.open_dataset(KINDS[kind](tmp_path)).class_names
    assert names == (CLASSES if kind in NAMED_CLASSES else ("blue", "green", "red"))


@pytest.mark.parametrize("kind", ["torch-pillow", "torch-tensor", "huggingface-mapped-stream"])
def test_pixels_have_the_fingerprint_of_the_same_arrays(tmp_path: Path, kind: str) -> None:
    assert rw.open_dataset(KINDS[kind](tmp_path), classes=CLASSES).fingerprint() == (
        rw.open_dataset(SIGNS).fingerprint()
    )


def test_files_have_one_fingerprint_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here, there = shards(tmp_path), shards(tmp_path / "elsewhere")
    assert rw.open_dataset(here).fingerprint() == rw.open_dataset(there).fingerprint()
    both = [rw.open_dataset(parquet(folder / "p.parquet")) for folder in (tmp_path, tmp_path / "elsewhere")]
    assert both[0].fingerprint() == both[1].fingerprint()
    assert rw.open_dataset(table()).fingerprint() == rw.open_dataset(table().to_iterable_dataset()).fingerprint()


def test_groups_and_conditions_come_along(tmp_path: Path) -> None:
    groups, rain = [f"g{row // 2}" for row in range(12)], [row % 3 for row in range(12)]
    opened: list[OpenedDataset] = [
        rw.open_dataset({"huggingface": table(sign=groups, rain=rain), "group": "sign"}),
        rw.open_dataset(table(group=groups, rain=rain).to_iterable_dataset()),
        rw.open_dataset(shards(tmp_path, "json")),
        rw.open_dataset({"parquet": str(parquet(tmp_path / "d.parquet", sign=groups, rain=rain)), "group": "sign"}),
    ]
    for data in opened:
        batch = data.batch(slice(None))
        assert list(batch.group) == groups
        assert {name: column.tolist() for name, column in batch.conditions.items()} == {"rain": rain}


def test_a_stream_beyond_the_memory_goes_to_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROADWORTHY_CACHE", str(tmp_path))
    monkeypatch.setattr(spool, "IN_MEMORY", 500)
    for kind in ("torch-pillow", "huggingface-stream"):
        data = rw.open_dataset(KINDS[kind](tmp_path))
        assert np.array_equal(data.batch(slice(None)).images, IMAGES)
        assert np.array_equal(data.batch([7]).images[0], IMAGES[7])
    assert (tmp_path / "spool").is_dir()
    assert not any((tmp_path / "spool").iterdir()), "the file has no name, so nothing is left behind"


def test_pictures_of_several_sizes_and_grey_ones(tmp_path: Path) -> None:
    pictures = [Image.new("L", (6, 4), 9), Image.new("RGB", (8, 8), (1, 2, 3)), Image.new("RGBA", (8, 8), (0, 0, 0, 0))]
    items = [(picture, number) for number, picture in enumerate(pictures)]
    data = rw.open_dataset(torch.utils.data.Subset(items, range(3)), size=4)  # type: ignore[arg-type]
    assert (data.channels, data.native_size(), data.size) == (3, None, (4, 4))
    assert [image[0, 0].tolist() for image in data.batch(slice(None)).images] == [[9] * 3, [1, 2, 3], [255] * 3]
    grey = rw.open_dataset(torch.utils.data.Subset(items[:1], [0]))  # type: ignore[arg-type]
    assert grey.batch([0]).images.shape == (1, 4, 6, 1)
    with pytest.raises(InputError, match=r"differ in size: give one for all with `size='HxW'`"):
        rw.open_dataset(torch.utils.data.Subset(items, range(3)))  # type: ignore[arg-type]


def test_a_part_of_a_torch_data_set_keeps_its_names() -> None:
    class Folder(Squares):
        root = "/data/signs"
        samples: ClassVar = [(f"/data/signs/{CLASSES[label]}/{row}.png", label) for row, label in enumerate(LABELS)]

    part = torch.utils.data.Subset(torch.utils.data.Subset(Folder(), [2, 5, 9]), [1, 2])
    assert rw.open_dataset(part).ids == ("green/5.png", "blue/9.png")
    assert rw.open_dataset(torch.utils.data.Subset(Squares(), [3, 4])).ids == ("3", "4")


def test_options_hold_for_objects() -> None:
    data = rw.open_dataset({"torch_dataset": Squares(), "only": ["red", "blue"], "limit": 4, "size": 16})
    assert (len(data), data.class_names, data.size) == (4, ("red", "blue"), (16, 16))
    assert len(rw.open_dataset(table(), limit=5)) == 5


# Annotated frames


class Annotated(NamedTuple):
    """An entry of a study, and the rows it must give: label, box, id, group."""

    entry: Callable[[Path], dict[str, Any]]
    rows: list[tuple[str, list[float], str, str]]
    classes: tuple[str, ...]


ONE = [2.0, 3.0, 12.0, 13.0]
CROPPED = [("stop", [0, 0, 10, 10], "one"), ("yield", [0, 0, 8, 8], "two"), ("stop", [0, 0, 10, 12], "two")]
ANNOTATED = {
    "coco-file": Annotated(
        lambda root: {"coco": f"{root}/annotations/instances_val2017.json", "images": f"{root}/images"},
        [("stop", ONE, "val2017-0", "val2017-0")],
        ("yield", "stop"),
    ),
    "coco-folder": Annotated(
        lambda root: {"coco": str(root), "split": "val"}, [("stop", ONE, "val-0", "val-0")], ("yield", "stop")
    ),
    "voc": Annotated(lambda root: {"voc": str(root)}, [("stop", ONE, "one", "one")], ("stop",)),
    "yolo": Annotated(lambda root: {"yolo": str(root)}, [("stop", ONE, "one", "one")], ("yield", "stop", "unused")),
    "voc-crops": Annotated(
        lambda root: {"voc": str(root), "crops": True},
        [
            (label, box, f"{frame}_{number:02d}", frame)
            for (label, box, frame), number in zip(CROPPED, (0, 0, 1), strict=True)
        ],
        ("stop", "yield"),
    ),
    "yolo-crops": Annotated(
        lambda root: {"yolo": str(root), "crops": True, "margin": 0.5},
        [
            ("stop", [2, 3, 12, 13], "one_00", "one"),
            ("yield", [0, 0, 8, 8], "two_00", "two"),
            ("stop", [6, 4, 16, 16], "two_01", "two"),
        ],
        ("yield", "stop", "unused"),
    ),
}


@pytest.mark.parametrize("name", ANNOTATED)
def test_annotated_frames_are_data_sets(tmp_path: Path, name: str) -> None:
    root, case = annotated_frames(tmp_path), ANNOTATED[name]
    data = rw.open_dataset(case.entry(root), fallback_size=8)
    assert data.class_names == case.classes
    assert data.table.boxes is not None
    rows = zip(data.labels, data.table.boxes.tolist(), data.ids, data.groups, strict=True)
    assert [(data.class_names[label], box, image_id, group) for label, box, image_id, group in rows] == [
        (label, pytest.approx(box), image_id, group) for label, box, image_id, group in case.rows
    ]
    assert len(data.fingerprint()) == 64
    if not case.entry(root).get("crops"):
        assert any("images left out: 1 with several objects, 1 without an object" in note for note in data.notes)


def test_a_crop_is_the_part_of_the_picture_that_shows_the_object(tmp_path: Path) -> None:
    root = annotated_frames(tmp_path)
    picture = np.asarray(Image.open(root / "images" / "two.png"))
    data = rw.open_dataset({"yolo": str(root), "crops": True}, size=(12, 10))
    batch = data.batch([data.ids.index("two_01")])
    assert np.array_equal(batch.images[0], picture[4:16, 10:20])
    assert len(set(data.content(range(3)))) == 3


def test_a_picture_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    root = annotated_frames(tmp_path)
    Image.new("RGB", (30, 30)).save(root / "JPEGImages" / "one.png")
    with pytest.raises(InputError, match=r"one\.png' has 30 x 30 pixels, but its annotations are for 24 x 20"):
        rw.open_dataset({"voc": str(root)})


# What is refused, in one sentence


def two_labels(_: Path) -> Any:
    import datasets

    return table(coarse=LABELS.tolist()).cast_column("coarse", datasets.ClassLabel(names=["a", "b", "c"]))


def normalised(image: np.ndarray) -> torch.Tensor:
    return (tensor(image) - 0.5) / 0.25


def shaking(image: np.ndarray) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, image.shape, dtype=np.uint8)


def damaged_tar(at: int, folder: Path) -> Path:
    path = write_tar(folder / "x.tar", sample_files(range(3)))
    content = bytearray(path.read_bytes())
    content[at : at + 8] = b"damaged!"
    path.write_bytes(content)
    return path


def cut_tar(folder: Path) -> Path:
    path = write_tar(folder / "x.tar", sample_files(range(3)))
    path.write_bytes(path.read_bytes()[:3000])
    return path


def linked_tar(folder: Path) -> Path:
    path = folder / "x.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("0001.png")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    return path


def tar_of(files: dict[str, bytes]) -> Callable[[Path], Path]:
    return lambda folder: write_tar(folder / "x.tar", files)


PNG = png(IMAGES[0])
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "several labels": (two_labels, r"several columns for the label, 'label', 'coarse': name one as `label`"),
    "no image": (lambda _: table().remove_columns("image"), r"no column for the image: .* label \(ClassLabel\)"),
    "unknown column": (lambda _: {"huggingface": table(), "label": "lable"}, r"unknown column .* did you mean 'label'"),
    "unlabelled": (lambda _: table().map(lambda row: {"label": -1}), r"labels are -1 to -1, but there are 3 class"),
    "several splits": (
        lambda _: __import__("datasets").DatasetDict({"a": table(), "b": table()}),
        r"the data has the splits 'a', 'b': name one, as in `split: a`",
    ),
    "unknown split": (lambda folder: {"huggingface": saved_splits(folder), "split": "tset"}, r"did you mean 'test'"),
    "not saved": (lambda folder: {"huggingface": folder}, r"saved by its `save_to_disk`: there is no dataset_info"),
    "loader": (lambda _: torch.utils.data.DataLoader(Squares()), r"give its data set, `loader\.dataset`"),
    "normalised": (lambda _: Squares(normalised), r"item 0 of data set Squares: .* as after Normalize: leave it out"),
    "between levels": (lambda _: Squares(lambda image: tensor(image) * 0.777), r"between the 256 levels"),
    "NaN": (lambda _: Squares(lambda image: tensor(image) * float("nan")), r"not all finite"),
    "augmented": (lambda _: Squares(shaking), r"another picture when it is asked for again: leave out random"),
    "one-hot": (lambda _: Squares(label=lambda label: torch.eye(3)[label]), r"one class, not Tensor of shape \(3,\)"),
    "three values": (lambda _: torch.utils.data.Subset([(1, 2, 3)], [0]), r"must be \(image, label\), not 3 values"),  # type: ignore[arg-type]
    "four channels": (lambda _: Squares(lambda image: np.zeros((8, 8, 4), np.uint8)), r"1 or 3 channels"),
    "it raises": (lambda _: Squares(lambda image: 1 / 0), r"Squares cannot be read: ZeroDivisionError"),
    "empty": (lambda _: torch.utils.data.Subset(Squares(), []), r"holds no images"),
    "torch in a study": (lambda _: "torch_dataset:x", r"give it from Python"),
    "header of a tar": (lambda folder: damaged_tar(2560 - 512 + 150, folder), r"damaged, or was not closed"),
    "cut tar": (cut_tar, r"x\.tar' is (damaged|not an intact)"),
    "a tar of links": (linked_tar, r"holds no samples"),
    "no tar": (lambda folder: (folder / "x.tar", (folder / "x.tar").write_bytes(b"x" * 3000))[0], r"not an intact tar"),
    "no label": (tar_of({"a.png": PNG}), r"no sample has a label: .* the files end in 'png'"),
    "some without a label": (tar_of({"a.png": PNG, "a.cls": b"0", "b.png": PNG}), r"'b' has no label"),
    "two pictures": (tar_of({"a.png": PNG, "a.jpg": PNG, "a.cls": b"0"}), r"several pictures, 'png', 'jpg': name one"),
    "twice": (tar_of({"a.png": PNG, "./a.cls": b"0", "a.PNG": PNG}), r"a.* twice|no label"),
    "broken JSON": (tar_of({"a.png": PNG, "a.json": b"{"}), r"x\.tar:a\.json is not valid JSON"),
    "damaged picture": (tar_of({"a.png": PNG[:40], "a.cls": b"0"}), r"x\.tar:a\.png' cannot be read"),
    "missing shard": (lambda folder: str(shards(folder) / "test-{000..002}.tar"), r"test-002\.tar: No such file"),
    "endless pattern": (lambda _: "webdataset:x-{0..999999999}.tar", r"more than 100,000 files"),
    "Parquet without bytes": (
        lambda folder: (
            pq.write_table(
                pa.table(
                    {"image": [{"bytes": None, "path": "/etc/passwd"}], "label": [0]},
                    schema=pa.schema(
                        {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "label": pa.int64()}
                    ),
                ),
                folder / "x.parquet",
            ),
            folder / "x.parquet",
        )[1],
        r"the row holds no bytes, only the path",
    ),
    "Parquet without labels": (
        lambda folder: (pq.write_table(pa.table({"image": [PNG]}), folder / "x.parquet"), folder / "x.parquet")[1],
        r"no column for the label",
    ),
    "margin without crops": (lambda folder: {"voc": annotated_frames(folder), "margin": 0.1}, r"add `crops: true`"),
    "unknown split of YOLO": (lambda folder: {"yolo": annotated_frames(folder), "split": "val"}, r"unknown split"),
    "a list": (lambda _: [1, 2], r"a data set is a path, .* not list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, name: str) -> None:
    make, sentence = REFUSED[name]
    spec = make(tmp_path)
    with pytest.raises(InputError, match=sentence) as raised:
        rw.open_dataset(spec).fingerprint()
    assert "\n" not in str(raised.value)


def test_the_webdataset_package_reads_the_same_samples(tmp_path: Path) -> None:
    import webdataset

    data = rw.open_dataset(shards(tmp_path), classes=CLASSES)
    theirs = webdataset.WebDataset(str(tmp_path / "shards" / "test-{000..001}.tar"), shardshuffle=False)
    samples = list(theirs.decode("rgb8").to_tuple("__key__", "png", "cls"))
    assert [key for key, _, _ in samples] == list(data.ids)
    assert [label for _, _, label in samples] == data.labels.tolist()
    assert np.array_equal(np.stack([image for _, image, _ in samples]), data.batch(slice(None)).images)


# Through the whole chain


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_names_files_and_never_an_object(tmp_path: Path, kind: str) -> None:
    data = KINDS[kind](tmp_path)
    in_file = not kind.startswith(("torch", "huggingface")) or "folder" in kind
    assert (in_memory(data) is None) == in_file
    assert str(data_spec(data)).startswith("<") == (not in_file)


@pytest.mark.parametrize("kind", ["huggingface-object", "torch-tensor", "webdataset-folder", "parquet-struct"])
def test_a_model_is_checked_on_it(tmp_path: Path, kind: str) -> None:
    (tmp_path / "m.onnx").write_bytes(network().SerializeToString())
    assert rw.check(str(tmp_path / "m.onnx"), KINDS[kind](tmp_path), classes=CLASSES).ok


def test_a_study_and_the_command_line_name_files_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test").mkdir()  # a folder called like a split is not that split
    saved_splits(tmp_path), shards(tmp_path)
    (tmp_path / "model.onnx").write_bytes(network().SerializeToString())
    entry = {"huggingface": "splits", "split": "test"}
    study = sample_study(data={"test": entry, "classes": list(CLASSES)}, criteria=None)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    call("run", "study.yaml", "--out", "run")
    stored = yaml.safe_load((tmp_path / "run" / "study.yaml").read_text())["data"]["test"]
    assert stored == {"huggingface": str(tmp_path / "splits"), "split": "test"}
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    for data in ("webdataset:shards", "shards/test-{000..001}.tar", f"webdataset:{tmp_path}/shards"):
        assert "12 images" in call("check", "--model", "model.onnx", "--data", data, "--classes", "classes.txt")


# The page on kinds of data

PAGE = Path(__file__).parent.parent / "docs" / "data_kinds.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page speaks of."""
    saved_splits(tmp_path).rename(tmp_path / "saved")
    (tmp_path / "m.onnx").write_bytes(network().SerializeToString())
    shards(tmp_path)
    annotated_frames(tmp_path / "frames")
    parquet(tmp_path / "test.parquet", sign=LABELS.tolist())
    WRITERS["gtsrb"](tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_of_the_page_works(workspace: Path) -> None:
    blocks = [text for language, text in BLOCK.findall(PAGE.read_text()) if language == "python"]
    namespace: dict[str, Any] = {}
    lengths = []
    for block in blocks:
        exec(block, namespace)
        lengths.append(len(namespace["data"]))
    assert lengths == [12, 10, 10, 12]
    assert (workspace / "runs" / "huggingface" / "report.html").is_file()


def test_the_entries_of_the_page_open(workspace: Path) -> None:
    blocks = [text for language, text in BLOCK.findall(PAGE.read_text()) if language == "yaml"]
    entries = [entry for block in blocks for entry in yaml.safe_load(block)["data"].values()]
    entries += [yaml.safe_load(text)["test"] for block in blocks for text in re.findall(r"# (test: .*)", block)]
    assert [next(iter(entry)) for entry in entries] == [
        "huggingface",
        "webdataset",
        "coco",
        "gtsrb",
        "gtsrb",
        "voc",
        "yolo",
    ]
    assert [len(rw.open_dataset(entry, fallback_size=8)) for entry in entries] == [12, 12, 1, 12, 3, 1, 3]


def test_the_page_names_every_kind() -> None:
    page = PAGE.read_text() + PAGE.with_name("data.md").read_text()
    assert [kind for kind in DATA if kind != "torch_dataset" and kind not in page] == []
