"""Well-known data sets by name: files in their true layout are opened with the right labels, groups and conditions."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from named_files import WRITERS, idx, pictures
from roadworthy.core.errors import InputError
from roadworthy.data import open_dataset
from roadworthy.data.named import NAMED


class Case(NamedTuple):
    """A data set with options, and what must be known of its images, in order."""

    kind: str
    options: dict[str, Any]
    labels: list[str]
    size: tuple[int, int] | None
    classes: int
    groups: list[str] | None = None
    boxes: list[tuple[int, ...]] | None = None
    conditions: dict[str, list[Any]] = {}  # noqa: RUF012 (never changed)
    first: Any = None
    """The pixels of the first image, where the order of bytes is the set's own."""


SIGNS = ["Speed limit (20km/h)", "Stop"]
SEVERITIES = [number for number in range(1, 6) for _ in range(2)]
CASES = [
    Case(
        "gtsrb",
        {"split": "train"},
        [SIGNS[0]] * 6 + [SIGNS[1]] * 6,
        None,
        43,
        [f"{label}/0000{track}" for label in ("00000", "00014") for track in (0, 1) for _ in range(3)],
        [(5, 6, 15 + frame, 16 + frame) for frame in [0, 1, 2] * 4],
        {"width": [20, 21, 22] * 4},
    ),
    Case(
        "gtsrb",
        {},
        ["Stop", "End of no passing by vehicles over 3.5t", SIGNS[0]],
        (24, 24),
        43,
        None,
        [(5, 5, 19, 20)] * 3,
        {"width": [24] * 3},
    ),
    Case(
        "btsc",
        {"split": "train"},
        ["00000"] * 3 + ["00061"] * 3,
        (30, 30),
        62,
        [f"{label}/{track}" for label in ("00000", "00061") for track in ("01153", "01153", "02997")],
        [(3, 3, 27, 28)] * 6,
    ),
    Case("btsc", {}, ["00003"] * 3, (30, 30), 62, ["00003/01153", "00003/01153", "00003/02997"]),
    Case("cifar10", {}, ["cat", "ship", "airplane"], (32, 32), 10, first=pictures(3)[0]),
    Case(
        "cifar10",
        {"split": "train"},
        ["automobile", *["bird"] * 2, *["cat"] * 3, *["deer"] * 4, *["dog"] * 5],
        (32, 32),
        10,
        first=pictures(2)[1],
    ),
    Case(
        "cifar100",
        {},
        ["apple", "beaver", "aquarium_fish"],
        (32, 32),
        5,
        conditions={"superclass": ["fish", "aquatic_mammals", "fish"]},
        first=pictures(3)[0],
    ),
    Case(
        "cifar100",
        {"split": "train", "labels": "coarse"},
        ["fish", "aquatic_mammals"],
        (32, 32),
        2,
        conditions={"subclass": ["apple", "beaver"]},
    ),
    Case(
        "cifar10_c",
        {"corruption": "fog", "severity": 3},
        ["cat", "ship"],
        (32, 32),
        10,
        ["0", "1"],
        None,
        {"corruption": ["fog"] * 2, "severity": [3, 3]},
        pictures(10)[4],
    ),
    Case(
        "cifar100_c",
        {"corruption": "all"},
        ["worm", "apple"] * 10,
        (32, 32),
        100,
        ["0", "1"] * 10,
        None,
        {"corruption": ["fog"] * 10 + ["zoom_blur"] * 10, "severity": SEVERITIES * 2},
    ),
    Case("svhn", {}, ["0", "1", "9"], (32, 32), 10, first=pictures(3)[0]),
    Case("svhn", {"split": "train"}, ["1", "2"], (32, 32), 10, first=pictures(2)[0]),
    Case(
        "tiny_imagenet",
        {},
        ["n02124075 Egyptian cat", "n01443537 goldfish, Carassius auratus", "n02124075 Egyptian cat"],
        (64, 64),
        2,
        None,
        [(row, 32, 45, 63) for row in range(3)],
    ),
    Case(
        "tiny_imagenet",
        {"split": "train"},
        ["n01443537 goldfish, Carassius auratus"] * 3 + ["n02124075 Egyptian cat"] * 3,
        (64, 64),
        2,
        None,
        [(row, 0, 64, 64) for row in [0, 9, 10] * 2],
    ),
    Case(
        "tiny_imagenet_c",
        {"corruption": "fog"},
        ["n01443537", "n02124075"] * 5,
        (64, 64),
        2,
        ["n01443537/test_7.JPEG", "n02124075/test_7.JPEG"] * 5,
        None,
        {"corruption": ["fog"] * 10, "severity": SEVERITIES},
    ),
    Case("mnist", {}, ["7", "2", "1"], (28, 28), 10, first=pictures(3, 28, 1)[0]),
    Case("mnist", {"split": "train"}, ["1", "0"], (28, 28), 10, first=pictures(2, 28, 1)[0]),
    Case("fashion_mnist", {}, ["Sneaker", "Pullover", "Trouser"], (28, 28), 10, first=pictures(3, 28, 1)[0]),
    Case("kmnist", {"split": "train"}, ["ki", "o"], (28, 28), 10),
    Case("emnist", {"variant": "letters"}, ["B", "A", "B"], (28, 28), 2, first=pictures(3, 28, 1)[0]),
    Case("stl10", {}, ["truck", "airplane", "bird"], (96, 96), 10, first=pictures(3, 96)[0]),
    Case("stl10", {"split": "train"}, ["airplane", "truck"], (96, 96), 10),
]


def named(case: Case) -> str:
    return f"{case.kind}-{'-'.join(map(str, case.options.values()))}"


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with the files of every set, by its name."""
    folders = {}
    for kind, write in WRITERS.items():
        folders[kind] = tmp_path_factory.mktemp(kind)
        write(folders[kind])
    return folders


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_set_is_opened_by_its_name(homes: dict[str, Path], case: Case) -> None:
    data = open_dataset({case.kind: str(homes[case.kind]), **case.options}, fallback_size=32)
    batch = data.batch(slice(None))
    assert [data.class_names[label] for label in batch.labels] == case.labels
    assert len(data.class_names) == case.classes
    assert data.native_size() == case.size
    assert list(batch.group) == (list(data.ids) if case.groups is None else case.groups)
    assert {name: column.tolist() for name, column in batch.conditions.items() if name in case.conditions} == (
        case.conditions
    )
    if case.boxes is not None:
        assert data.table.boxes is not None
        assert list(map(tuple, data.table.boxes.astype(int).tolist())) == case.boxes
    if case.first is not None:
        assert np.array_equal(batch.images[0], case.first)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_fingerprint_does_not_depend_on_the_place(homes: dict[str, Path], tmp_path: Path, case: Case) -> None:
    here = homes[case.kind]
    there = shutil.copytree(here, tmp_path / "elsewhere")
    first, second = (open_dataset({case.kind: str(root), **case.options}, fallback_size=32) for root in (here, there))
    assert first.fingerprint() == second.fingerprint()
    assert first.ids == second.ids
    assert first.table.digest() == second.table.digest()


def test_every_set_has_a_test_and_a_line_in_the_list() -> None:
    from roadworthy.listing import listing

    lines = dict(listing("data"))
    assert set(NAMED) == set(WRITERS) == {case.kind for case in CASES}
    assert all(lines[name].endswith(".") and ":" in lines[name] for name in NAMED)


def cut(name: str, length: int = -1) -> Callable[[Path], None]:
    """Cut a file at the end."""

    def spoil(folder: Path) -> None:
        (path,) = folder.rglob(name)
        path.write_bytes(path.read_bytes()[:length])

    return spoil


def put(name: str, content: str | bytes) -> Callable[[Path], None]:
    """Give a file another content."""

    def spoil(folder: Path) -> None:
        (path,) = folder.rglob(name)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return spoil


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Change the text of a file."""

    def spoil(folder: Path) -> None:
        path = next(folder.rglob(name))
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return spoil


def removed(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        next(folder.rglob(name)).unlink()

    return spoil


def pickled(folder: Path) -> None:
    (folder / "cifar-10-batches-bin").rename(folder / "cifar-10-batches-py")
    for path in (folder / "cifar-10-batches-py").iterdir():
        path.unlink()


DAMAGED = [
    ("gtsrb", {}, replaced("GT-final_test.csv", ";14\n", ";x\n"), r"GT-final_test\.csv'.*ClassId.* not 'x'"),
    ("gtsrb", {}, replaced("GT-final_test.csv", ";14\n", ";43\n"), r"00000\.ppm' has the class 43, but there are 43"),
    ("gtsrb", {}, replaced("GT-final_test.csv", "00000.ppm", "../0.ppm"), r"leads outside its folder"),
    ("gtsrb", {}, replaced("GT-final_test.csv", ";24;5", ";24;30"), r"the box 30 5 19 20 .* is not inside its 24x24"),
    ("gtsrb", {}, replaced("GT-final_test.csv", "Roi.X1", "Roi"), r"there is no column 'Roi\.X1'"),
    ("gtsrb", {}, replaced("GT-final_test.csv", ";42\n", "\n"), r"row 2 has more or fewer values"),
    ("gtsrb", {}, removed("GT-final_test.csv"), r"GTSRB_Final_Test_GT\.zip.*split: train"),
    ("gtsrb", {}, removed("00001.ppm"), r"00001\.ppm' cannot be read: No such file"),
    ("gtsrb", {"split": "tset"}, lambda folder: None, r"split cannot be 'tset': Input should be 'train' or 'test'"),
    ("gtsrb", {"splits": "test"}, lambda folder: None, r"unknown option of a gtsrb dataset 'splits': did you mean"),
    ("btsc", {"split": "train"}, cut("00061/01153_00000.ppm", 9), r"images cannot be used: image '.*01153_00000\.ppm'"),
    ("cifar10", {}, cut("test_batch.bin"), r"test_batch\.bin': it has 9,218 bytes, which is no multiple of 3,073"),
    ("cifar10", {}, put("test_batch.bin", bytes([10]) + bytes(3072)), r"labels are 10 to 10, but there are 10 class"),
    ("cifar10", {"split": "train"}, removed("data_batch_3.bin"), r"there is no data_batch_3\.bin, nor in cifar-10-b"),
    ("cifar10", {}, pickled, r"which is pickled, and pickle runs any code"),
    ("cifar100", {}, put("fine_label_names.txt", "apple\n"), r"a fine label is 4, but fine_label_names\.txt has 1"),
    ("cifar10_c", {}, lambda folder: None, r"CIFAR-10-C holds 2 corruptions: name one, such as `corruption: fog`"),
    ("cifar10_c", {"corruption": "snow"}, lambda folder: None, r"unknown corruption of CIFAR-10-C 'snow'"),
    ("cifar10_c", {"corruption": "fog", "severity": 6}, lambda folder: None, r"severity is a number from 1 to 5"),
    ("cifar10_c", {"corruption": "fog"}, cut("fog.npy"), r"fog\.npy' cannot be read: it is cut"),
    ("cifar10_c", {"corruption": "fog"}, cut("labels.npy"), r"labels\.npy' cannot be read"),
    ("svhn", {}, cut("test_32x32.mat", 500), r"test_32x32\.mat': it must hold X"),
    ("svhn", {}, put("test_32x32.mat", b"MATLAB 7.3"), r"test_32x32\.mat' cannot be read"),
    ("tiny_imagenet", {}, replaced("val_annotations.txt", "\t62", ""), r"line 1 has 5 values where 6 are expected"),
    ("tiny_imagenet", {}, replaced("wnids.txt", "n01443537", "n01443538"), r"'n01443537', which wnids\.txt does not"),
    ("tiny_imagenet_c", {"corruption": "fog"}, removed("fog/3/n01443537/test_7.JPEG"), None),
    ("mnist", {}, cut("t10k-images-idx3-ubyte"), r"holds 2,351 values, but its header says 2,352: is it cut"),
    ("mnist", {}, put("t10k-labels-idx1-ubyte", idx(np.array([1, 2], np.uint8))), r"has 3 images but 2 labels"),
    ("mnist", {}, put("t10k-images-idx3-ubyte", b"\0\0\x0b\x03" + bytes(12)), r"not an idx file of unsigned bytes"),
    ("kmnist", {}, cut("t10k-images-idx3-ubyte.gz", -9), r"t10k-images-idx3-ubyte\.gz' cannot be read: Compressed"),
    (
        "kmnist",
        {},
        put("t10k-labels-idx1-ubyte.gz", gzip.compress(idx(np.array([11] * 3, np.uint8)))),
        r"labels are 11",
    ),
    ("emnist", {"variant": "letters"}, put("emnist-letters-mapping.txt", "1 65\n3 66\n"), r"not numbered one after"),
    ("stl10", {}, cut("test_X.bin"), r"test_X\.bin': it has 82,943 bytes, which is no multiple of 27,648"),
    ("stl10", {}, put("test_y.bin", b"\1"), r"test_y\.bin': it holds 1 labels, but test_X\.bin 3 images"),
]


@pytest.mark.parametrize(("kind", "options", "spoil", "sentence"), DAMAGED)
def test_what_is_damaged_is_one_sentence(
    homes: dict[str, Path], tmp_path: Path, kind: str, options: dict[str, Any], spoil: Any, sentence: str | None
) -> None:
    home = shutil.copytree(homes[kind], tmp_path / "set")
    spoil(home)
    if sentence is None:  # a set that lacks some of its images is still one
        assert len(open_dataset({kind: str(home), **options})) == 9
        return
    with pytest.raises(InputError, match=sentence) as raised:
        open_dataset({kind: str(home), **options}, fallback_size=32).fingerprint()
    assert "\n" not in str(raised.value)


def test_classes_of_ones_own_fix_the_order(homes: dict[str, Path]) -> None:
    names = ["ship", "cat", "airplane", "dog"]
    data = open_dataset({"cifar10": str(homes["cifar10"])}, classes=names)
    assert data.labels.tolist() == [1, 0, 2]
    assert data.class_names == tuple(names)


def test_a_limit_reads_the_chosen_rows_alone(homes: dict[str, Path]) -> None:
    whole = open_dataset({"cifar10": str(homes["cifar10"]), "split": "train"})
    few = open_dataset({"cifar10": str(homes["cifar10"]), "split": "train", "limit": 4})
    rows = [whole.ids.index(name) for name in few.ids]
    assert len(few) == 4
    assert np.array_equal(few.batch(slice(None)).images, whole.batch(rows).images)
    assert few.fingerprint() == whole.fingerprint_of(rows)


def test_the_folder_below_or_the_folder_itself_may_be_given(homes: dict[str, Path]) -> None:
    above, home = homes["stl10"], homes["stl10"] / "stl10_binary"
    assert open_dataset(f"stl10:{above}").fingerprint() == open_dataset(f"stl10:{home}").fingerprint()
