"""Data and arrays that could be read in two ways, or in none: one sentence, never a guess and never a traceback."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import roadworthy as rw
import roadworthy.maite
from roadworthy import diagnosing
from roadworthy.core.errors import InputError, MissingExtra
from roadworthy.study import whole_paths

IMAGE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
HEADER = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n"


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def parquet(path: Path, names: tuple[str, ...] = ("stop", "yield"), label: str = "label", **more: list[Any]) -> None:
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    columns = {"image": [png(0), png(1)], label: [0, 1], **more}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)


def parquets(*names: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        for name in names:
            parquet(folder / name)
        return {"parquet": str(folder)}

    return make


def other_parquet(**other: Any) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        parquet(folder / "test-0.parquet")
        parquet(folder / "test-1.parquet", **other)
        return {"parquet": str(folder)}

    return make


def shard(path: Path, **files: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for ending, content in files.items():
            entry = tarfile.TarInfo(f"a.{ending}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def shards(*names: str, **files: bytes) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        for name in names:
            shard(folder / name, png=png(1), **(files or {"cls": b"0"}))
        return str(folder)

    return make


def belgian(part: str, split: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        home = folder / part / "00000"
        home.mkdir(parents=True)
        Image.new("RGB", (20, 20)).save(home / "00000_00000.ppm")
        (home / "GT-00000.csv").write_text(HEADER + "00000_00000.ppm;20;20;5;5;15;15;0\n")
        return {"btsc": str(home.parent), "split": split}

    return make


def coco(*categories: tuple[int, str], box: Any = (1, 1, 4, 4)) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        (folder / "0.png").write_bytes(png(1))
        content = {
            "images": [{"id": 0, "file_name": "0.png", "width": 8, "height": 8}],
            "annotations": [{"id": 0, "image_id": 0, "category_id": 1, "bbox": box}],
            "categories": [{"id": number, "name": name} for number, name in categories],
        }
        (folder / "test.json").write_text(json.dumps(content))
        return {"coco": str(folder / "test.json"), "images": str(folder)}

    return make


def yolo(names: str, *labels: str | None) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        (folder / "data.yaml").write_text(names)
        for name in ("images", "labels"):
            (folder / name).mkdir()
        for number, lines in enumerate(labels):
            (folder / "images" / f"{number}.png").write_bytes(png(number))
            if lines is not None:
                (folder / "labels" / f"{number}.txt").write_text(lines)
        return {"yolo": str(folder)}

    return make


def table(folder: Path) -> Any:
    (folder / "signs.csv").write_text("path;label\n0.png;stop\n")
    return str(folder / "signs.csv")


class Animals(torch.utils.data.Dataset[Any]):
    """Four classes, of which the last two are signs."""

    classes: tuple[str, ...] = ("cat", "dog", "stop", "yield")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> Any:
        return np.full((8, 8, 3), row, np.uint8), row


class Signs(torch.utils.data.Dataset[Any]):
    """The signs alone, numbered from 0."""

    def __init__(self) -> None:
        self.dataset, self.indices = Animals(), [2, 3]

    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> Any:
        image, label = self.dataset[self.indices[row]]
        return image, label - 2


class Broken(Animals):
    def __getitem__(self, row: int) -> Any:
        return super().__getitem__(row if row < 3 else 1 // 0)


class Contradicting(Animals):
    class_to_idx = {"dog": 0, "cat": 1, "stop": 2, "yield": 3}  # noqa: RUF012 (as torchvision has it)


def saved(**more: Any) -> Any:
    import datasets

    kinds = {name: datasets.Value("int64") for name in more}
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a"]), **kinds}
    columns = {"image": [{"bytes": png(1), "path": None}], "label": [0], **more}
    return datasets.Dataset.from_dict(columns, datasets.Features(features))


class Items:
    """A data set of MAITE with two classes."""

    def __init__(self, target: Any = None, **metadata: Any) -> None:
        self.target, self.metadata = target, {"id": "items", **metadata}

    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> Any:
        if isinstance(self.target, Exception):
            raise self.target
        return np.full((3, 8, 8), row, np.uint8), np.eye(2)[row] if self.target is None else self.target, {"id": row}


def objects(boxes: Any, labels: Any = (1,)) -> Any:
    return SimpleNamespace(boxes=boxes, labels=labels, scores=[1.0])


BOX = "0 .5 .5 .2 .2\n"
DATA: dict[str, tuple[Callable[[Path], Any], str]] = {
    "splits": (
        parquets("test-00000-of-00001.parquet", "train-00000-of-00002-0123456789abcdef.parquet"),
        r"holds test, train: name one as `split`",
    ),
    "other classes": (other_parquet(names=("yield", "stop")), r"test-1\.parquet' has other classes than test-0"),
    "other columns": (other_parquet(rain=[0, 1]), r"test-1\.parquet' has other columns"),
    "shards": (shards("test-0.tar", "train-0.tar"), r"holds 'test', 'train': write the pattern .* `test-\{000\.\.003"),
    "label of a list": (shards("a.tar", json=b'{"label": [1]}'), r"sample 'a': a label is .* not \[1\]"),
    "label of a bool": (shards("a.tar", json=b'{"label": true}'), r"sample 'a': a label is .* not True"),
    "box of a shard": (shards("a.tar", json=b'{"label": 0, "box": 3}'), r"box 3 of image 'a' must be four numbers"),
    "box of a column": (lambda _: saved(box=[3]), r"box 3 of image '0' must be four numbers"),
    "two labels": (
        shards("a.tar", cls=b"0", json=b'{"label": 1}'),
        r"label '0' in its \.cls file and '1' in its \.json file: say which counts with `label: cls` or `label: json:l",
    ),
    "one name, two categories": (coco((1, "a"), (2, "a")), r"categories 1 and 2 of .* are both called 'a'"),
    "box without area": (coco((1, "a"), box=[1, 1, 0, 3]), r"no image of .* can be used: 1 with a box without area"),
    "box outside": (coco((1, "a"), box=[9, 9, 2, 3]), r"no image of .* can be used: 1 with a box outside the image"),
    "number of classes": (yolo("names: [a, b]\nnc: 3\n", BOX), r"names 2 classes, and its `nc:` says 3"),
    "no labels": (yolo("names: [a]\n", None, ""), r"1 without a file of labels, 1 without an object"),
    "semicolons": (table, r"no column 'path'; the columns are 'path;label': separate them by commas, not by ';'"),
    "an item raises": (lambda _: Broken(), r"item 3 of data set Broken cannot be read: ZeroDivisionError"),
    "training part": (belgian("Training", "test"), r"this is the training part: say `split: train`"),
    "test part": (belgian("BelgiumTSC_Testing", "train"), r"this is the test part: say `split: test`"),
    "numbers of classes": (lambda _: Contradicting(), r"number the classes differently: .* `classes=`"),
    "group of images": (lambda _: {"huggingface": saved(), "group": "image"}, r"'image' is Image, not numbers or text"),
    "key of index2label": (lambda _: Items(index2label={0: "a", "x": "b"}), r"index2label must be a mapping"),
    "twice in index2label": (lambda _: Items(index2label={0: "a", "0": "c", 1: "b"}), r"classes 0 to 1, each once"),
    "list as index2label": (lambda _: Items(index2label=["0a", "1b"]), r"index2label must be a mapping"),
    "long index2label": (
        lambda _: Items(index2label=dict(enumerate("abc"))),
        r"2 classes, and its index2label names 3",
    ),
    "it raises": (lambda _: Items(OSError("no disk")), r"item 0 of data set items cannot be read: OSError: no disk"),
    "text as boxes": (lambda _: Items(objects("x")), r"its boxes must be numbers"),
    "box of two numbers": (lambda _: Items(objects([[1, 2]])), r"boxes are \(K, 4\), not \(1, 2\)"),
    "text as label": (lambda _: Items(objects([[1, 2, 3, 4]], ["a"])), r"its labels must be numbers"),
}


@pytest.mark.parametrize("name", DATA)
def test_data_that_could_mean_two_things_is_refused(tmp_path: Path, name: str) -> None:
    make, sentence = DATA[name]
    with pytest.raises(InputError, match=sentence) as raised:
        rw.open_dataset(make(tmp_path))
    assert "\n" not in str(raised.value)


def test_labels_that_two_files_of_a_sample_say_may_agree_or_be_chosen(tmp_path: Path) -> None:
    shard(tmp_path / "a.tar", png=png(1), cls=b"stop", json=b'{"label": "yield"}')
    assert rw.open_dataset({"webdataset": str(tmp_path / "a.tar"), "label": "cls"}).class_names == ("stop",)
    assert rw.open_dataset({"webdataset": str(tmp_path / "a.tar"), "label": "json:label"}).class_names == ("yield",)
    for agreeing in (b'{"label": 0}', b'{"label": "stop"}', b'{"hour": 3}'):
        shard(tmp_path / "b.tar", png=png(1), cls=b"0", json=agreeing)
        assert rw.open_dataset(str(tmp_path / "b.tar")).class_names == ("0",)


def test_images_without_a_file_of_labels_are_counted(tmp_path: Path) -> None:
    data = rw.open_dataset(yolo("names: [a]\n", BOX, None, BOX)(tmp_path))
    assert (len(data), data.notes[-1]) == (2, "images left out: 1 without a file of labels")


def test_an_empty_cell_of_a_table_is_a_picture_that_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "test.parquet"
    for images in ([png(1), None], [{"bytes": png(1), "path": None}, {"bytes": None, "path": None}]):
        pq.write_table(pa.table({"image": images, "label": ["a", "b"]}), path)
        with pytest.raises(InputError, match=r"1 of 2 images .* 'test\.parquet: image of row 1' .*on_bad_image='skip'"):
            rw.open_dataset(path)
        assert rw.open_dataset(path, on_bad_image="skip").ids == ("0",)


def test_more_classes_than_targets_of_maite_are_refused() -> None:
    with pytest.raises(InputError, match=r"targets of 2 classes, and `classes` names 3"):
        rw.open_dataset(Items(), classes=["a", "b", "c"])
    assert rw.open_dataset(Items(), classes=["a", "b"]).class_names == ("a", "b")
    located = Items(objects([[1, 1, 3, 3]]), index2label=dict(enumerate("abcd")))
    assert rw.open_dataset(located).class_names == tuple("abcd")


def test_a_part_of_a_folder_of_parquet_is_named(tmp_path: Path) -> None:
    parquets("test-0.parquet", "train-0.parquet", "train-1.parquet")(tmp_path)
    assert len(rw.open_dataset({"parquet": str(tmp_path), "split": "train"})) == 4
    with pytest.raises(InputError, match=r"unknown split .* did you mean 'test'"):
        rw.open_dataset({"parquet": str(tmp_path), "split": "tset"})
    with pytest.raises(InputError, match=r"has no splits: leave `split` out"):
        rw.open_dataset({"parquet": str(tmp_path / "test-0.parquet"), "split": "test"})


def test_the_classes_of_a_torch_data_set_are_its_own() -> None:
    assert rw.open_dataset(Signs()).class_names == ("0", "1")
    subset = rw.open_dataset(torch.utils.data.Subset(Animals(), [2, 3]))
    assert (subset.class_names, subset.labels.tolist(), subset.ids) == (Animals.classes, [2, 3], ("2", "3"))
    names = ["dog", "cat", "stop", "yield"]
    given = rw.open_dataset(Contradicting(), classes=names)
    assert (given.class_names, given.labels.tolist()) == (tuple(names), [0, 1, 2, 3])


def test_a_stored_study_keeps_the_folder_of_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for pattern in ("shards/test-{000..001}.tar", "{a,b}.tar", "shards/{a,b}/x.tar"):
        assert whole_paths({"webdataset": pattern}, tmp_path) == {"webdataset": str(tmp_path / pattern)}
        assert whole_paths(f"webdataset:{pattern}", tmp_path) == f"webdataset:{tmp_path / pattern}"
    for other in ("elsewhere/test-{000..001}.tar", "{a}", "a{b}"):
        assert whole_paths(other, tmp_path) == other


def test_endings_of_shards_and_numbers_of_streams(tmp_path: Path) -> None:
    import datasets

    shard(tmp_path / "a.tar", PNG=png(1), CLS=b"0")
    assert len(rw.open_dataset({"webdataset": str(tmp_path / "a.tar"), "label": "CLS"})) == 1

    def rows() -> Iterator[Any]:
        for row in range(3):
            yield {"image": np.full((8, 8, 3), row, np.uint8), "label": np.int64(row), "rain": np.float32(0.5)}

    data = rw.open_dataset(datasets.IterableDataset.from_generator(rows))
    assert data.labels.tolist() == [0, 1, 2]
    assert data.table.conditions["rain"].tolist() == [0.5] * 3


def update(probabilities: Any, labels: Any, groups: Any = None, **settings: Any) -> None:
    rw.metrics.Accumulator("accuracy", **settings).update(probabilities, labels, groups)


def measure(answer: Any, target: Any = (1, 0)) -> None:
    rw.maite.Metric("accuracy").update([answer], [np.array(target)], [{"id": 0}])


def locate(answer: Any) -> None:
    rw.maite.BoxMetric("iou").update([answer], [objects([[0, 0, 4, 4]])], [{"id": 0}])


def augment(*batch: Any) -> None:
    rw.maite.Augmentation("rotation")(batch)  # type: ignore[call-overload]


PIXELS, ROW = np.zeros((3, 8, 8), np.uint8), [[0.5, 0.5]]
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "ragged probabilities": (lambda: update([[0.5, 0.5], [1.0]], [0, 0]), r"in rows of one length"),
    "text as probabilities": (lambda: update([["a", "b"]], [0]), r"must be numbers"),
    "ragged labels": (lambda: update(ROW, [[0, 1], [1]]), r"in rows of one length"),
    "ragged groups": (lambda: update(ROW, [0], [["a"], ["b", "c"]]), r"`groups=` are texts or whole numbers"),
    "groups of floats": (lambda: update(ROW, [0], [1.0]), r"`groups=` are texts or whole numbers"),
    "groups of an array of floats": (lambda: update(ROW, [0], np.ones(1)), r"`groups=` are texts or whole numbers"),
    "groups with a gap": (lambda: update(ROW * 2, [0, 0], ["a", float("nan")]), r"`groups=` are texts"),
    "groups without a name": (lambda: update(ROW * 2, [0, 0], ["a", None]), r"`groups=` are texts"),
    "confidence": (lambda: update(ROW, [0], confidence=1), r"confidence must be a number between 0 and 1, not 1"),
    "text as confidence": (lambda: update(ROW, [0], confidence="a"), r"confidence must be a number"),
    "resamples": (lambda: update(ROW, [0], resamples=10), r"resamples must be a whole number from 40 to"),
    "seed": (lambda: update(ROW, [0], seed=-1), r"seed must be a whole number from 0 to"),
    "confidence of boxes": (lambda: rw.maite.BoxMetric("iou", confidence=2), r"confidence must be a number"),
    "more classes answered": (lambda: measure([0, 0.9, 0.1]), r"datum '0': its target has 2 classes, .* \(3,\)"),
    "text answered": (lambda: measure("a"), r"datum '0': the answer must be numbers"),
    "ragged answer": (lambda: measure([[1], [1, 2]]), r"datum '0': the answer must be numbers"),
    "text as box": (lambda: locate(objects([["a"] * 4])), r"datum '0': its boxes must be numbers"),
    "scores": (lambda: locate(objects([[0, 0, 1, 1], [0, 0, 2, 2]])), r"2 boxes and scores of the shape \(1,\)"),
    "batch of two": (lambda: augment([PIXELS], [np.eye(2)[0]]), r"a batch is \(images, targets, metadata\)"),
    "short box": (lambda: augment([PIXELS], [objects([[1, 1]])], [{"id": 0}]), r"boxes are \(K, 4\), not \(1, 2\)"),
    "ragged scores": (
        lambda: augment(
            [PIXELS], [SimpleNamespace(boxes=[[1, 1, 3, 3]], labels=[1], scores=[[1], [1, 2]])], [{"id": 0}]
        ),
        r"its scores must be numbers",
    ),
    "ragged image": (lambda: rw.shifts.fog([[1, 2], [3]]), r"an image must have rows of one length"),
    "ragged boxes": (lambda: rw.shifts.fog(IMAGE, boxes=[[1, 2], [3]]), r"`boxes=` must have rows of one length"),
    "id without an end": (lambda: rw.shifts.fog(IMAGE[None], id=np.array(3)), r"`id=` must be a text or a number"),
    "no image": (lambda: rw.shifts.Transform("crop")(image=[[1, 2], [3]]), r"an image must have rows of one length"),
    "number as box": (lambda: rw.shifts.Transform("crop")(image=IMAGE, bboxes=[3]), r"a box of `bboxes=` is x0, y0"),
    "boxes as a number": (lambda: rw.shifts.Transform("crop")(image=IMAGE, bboxes=3), r"a box of `bboxes=` is x0, y0"),
}


@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_cannot_be_used_are_one_sentence(name: str) -> None:
    call, sentence = CALLS[name]
    with pytest.raises(InputError, match=sentence) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_groups_of_texts_and_whole_numbers_are_taken() -> None:
    meter = rw.metrics.Accumulator("accuracy")
    for groups in (["a", "b"], [1, np.int64(2)], np.array([1, 3]), np.array(["a", "c"], object), ("d", 4)):
        meter.update(ROW * 2, [0, 0], groups)
    assert meter.compute()["accuracy"].groups == 8


def test_boxes_of_whole_numbers_become_floats() -> None:
    transform, box = rw.shifts.Transform("rotation", level=4, seed=1), [[10, 10, 20, 20]]
    expected = transform(image=IMAGE, bboxes=np.array(box, np.float64))["bboxes"]
    for kind in (np.int64, np.uint8):
        moved = transform(image=IMAGE, bboxes=np.array(box, kind))["bboxes"]
        np.testing.assert_array_equal(moved, expected)
    assert (expected != np.rint(expected)).any()
    assert transform(image=IMAGE, bboxes=np.zeros((0, 4), np.int64))["bboxes"].dtype == np.float64


def test_ids_may_be_numbers_of_numpy() -> None:
    batch = rw.shifts.fog(np.stack([IMAGE, IMAGE]), id=np.arange(2))
    np.testing.assert_array_equal(batch[1], rw.shifts.fog(IMAGE, id=np.int64(1)))


def test_the_extra_that_reads_data_sets_of_hugging_face_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved()
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"Hugging Face data sets need .*\[datasets\]"):
        rw.open_dataset(data)


def test_a_cache_that_may_not_be_looked_at_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", forbidden)
        folder = diagnosing._folder(Path("/nowhere/cache"))
    assert folder == diagnosing.Folder("/nowhere/cache", 0, False)
