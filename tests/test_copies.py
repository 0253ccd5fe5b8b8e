"""Images that are there twice: copies in a set count in one object, sets of different roles share a few at most."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import roadworthy as rw
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.data import BuiltinDataset, Opening, Subset, open_dataset, split_by_group
from roadworthy.data.base import COPIES, identities
from roadworthy.data.leaks import check_apart, counted_once
from roadworthy.data.relabelled import Relabelled
from roadworthy.data.subset import Mirrored
from roadworthy.executing import execute
from roadworthy.models import CallableModel
from roadworthy.preparing import Prepared, prepare
from roadworthy.statistics.intervals import interval_of_objects
from roadworthy.study import parse_study

CLASSES = ("bright", "dark")


def images_of(numbers: Sequence[int]) -> np.ndarray:
    """Images (N, 16, 16, 3): those of an even number are bright, others dark, and equal numbers are equal images."""
    values = np.array(numbers)
    images = np.where(values % 2, 50, 200)[:, None, None, None] * np.ones((1, 16, 16, 3))
    images[:, 0, 0, 0], images[:, 0, 0, 1] = values % 256, values // 256
    return images.astype(np.uint8)


def pictures(numbers: Sequence[int], name: str = "data") -> Any:
    """A data set of them, each an object of its own."""
    return open_dataset((images_of(numbers), np.array(numbers) % 2, CLASSES), name=name)


def stored(path: Path, numbers: Sequence[int], tracks: Sequence[int] | None = None) -> str:
    """The same in a file, with the tracks that images are of."""
    extra = {} if tracks is None else {"group": np.array(tracks)}
    np.savez(path, images=images_of(numbers), labels=np.array(numbers) % 2, class_names=CLASSES, **extra)
    return str(path)


def by_brightness(images: np.ndarray) -> np.ndarray:
    """Sure of what is right for every picture of these tests."""
    bright = images.reshape(len(images), -1).mean(axis=1) > 100
    return np.where(bright[:, None], [0.9, 0.1], [0.1, 0.9]).astype(np.float32)


MODEL = CallableModel(by_brightness, num_classes=2, version="1")


def save_pictures(folder: Path, numbers: Sequence[int]) -> Path:
    """A folder per class, a file for each image."""
    for row, (number, image) in enumerate(zip(numbers, images_of(numbers), strict=True)):
        path = folder / CLASSES[number % 2] / f"{row:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


# ------------------------------------------------------------------------------------------------------ copies in a set


def test_a_copy_moves_alone_into_the_object_of_the_image_that_it_equals(tmp_path: Path) -> None:
    data = open_dataset(stored(tmp_path / "test.npz", [1, 2, 3, 1, 4, 2, 1], tracks=[7, 8, 8, 9, 9, 8, 9]))
    once = counted_once(data)
    assert once.groups == ("7", "8", "8", "7", "9", "8", "7")
    assert once.batch([3, 4]).group == ("7", "9")
    assert once.ids == data.ids
    assert (once.batch(slice(None)).images == data.batch(slice(None)).images).all()
    assert once.fingerprint() != data.fingerprint()
    assert once.notes[-1] == f"{COPIES}3 of 7 images, such as 3 (equal to 0)"
    assert counted_once(once.resized((8, 8))).groups == once.groups


def test_a_copy_under_another_label_is_named_as_doubtful() -> None:
    images = images_of([1, 2, 1, 2])
    once = counted_once(open_dataset((images, np.array([1, 0, 0, 0]), CLASSES)))
    assert once.notes[-1].endswith("2 of 4 images, such as 2 (equal to 0); 1 of them with another label than the image "
                                   "that they equal")  # fmt: skip


def test_data_without_copies_keeps_all_that_it_was() -> None:
    plain, drawn = pictures([1, 2, 3]), BuiltinDataset("signs", n=60)
    mirrored, part = Mirrored(drawn), Subset(drawn, [3, 2])
    for data in (plain, drawn, mirrored, part, Relabelled(drawn, drawn.class_names), pictures([5])):
        assert counted_once(data) is data
        assert len({*identities(data)}) == len(data)
    assert {*identities(part)} <= {*identities(BuiltinDataset("signs", Opening(size=32), n=90))}


def test_files_are_told_apart_without_decoding_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_dataset(save_pictures(tmp_path / "test", [1, 2, 3, 4, 1]))
    with monkeypatch.context() as patched:
        patched.setattr(type(data), "_check", None)
        known = identities(data)
        assert counted_once(data).groups.count("dark/000.png") == 2
    assert data.content(range(len(data))) == known
    broken = tmp_path / "test/bright/001.png"
    broken.write_bytes(broken.read_bytes()[:60])
    again = open_dataset(tmp_path / "test")
    assert len({*identities(again)}) == 4
    with pytest.raises(InputError, match="truncated"):
        again.verify_all()


def test_two_images_over_and_over_are_two_objects_and_no_drawn_set() -> None:
    assert len({*counted_once(pictures([1, 2] * 10)).groups}) == 2


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.data())
def test_copies_add_no_object(numbers: list[int], data: st.DataObject) -> None:
    """Whatever was copied and wherever the copies stand behind the images, the objects are those of the images."""
    distinct = list(dict.fromkeys(numbers))
    copied = data.draw(st.lists(st.sampled_from(distinct), max_size=30))
    once, whole = counted_once(pictures(distinct)), counted_once(pictures([*distinct, *copied]))
    assert {*whole.groups} == {*once.groups} == {*once.ids}
    object_of = dict(zip(distinct, once.groups, strict=True))
    assert whole.groups == tuple(object_of[number] for number in [*distinct, *copied])


@given(st.lists(st.booleans(), min_size=2, max_size=40), st.integers(2, 6))
def test_a_set_that_is_copied_whole_has_the_same_interval(right: list[bool], times: int) -> None:
    def interval(groups: Sequence[str], answers: Sequence[bool]) -> tuple[float, float]:
        names = list(dict.fromkeys(groups))
        members = [[answer for group, answer in zip(groups, answers, strict=True) if group == name] for name in names]
        return interval_of_objects(np.array([np.mean(own) for own in members]), np.array([*map(len, members)], float))

    numbers = [*range(len(right))]
    copied = counted_once(pictures(numbers * times))
    assert interval(copied.groups, right * times) == pytest.approx(interval(pictures(numbers).groups, right), abs=1e-9)


def accuracy(tmp_path: Path, numbers: Sequence[int]) -> tuple[rw.Run, dict[str, Any]]:
    where = {"protocol": "classification", "shift": "none"}
    criteria = [{"id": "A", "metric": "accuracy", "where": where, "at_least": 0.95}]
    content = {
        "name": "copies",
        "data": {"test": str(save_pictures(tmp_path / f"{len(numbers)}", numbers))},
        "models": {"m": {"onnx": "given"}},
        "protocols": {"classification": {"shifts": ["noise"], "levels": [1]}},
        "criteria": criteria,
    }
    prepared = prepare(parse_study(content, "copies"), models={"m": MODEL}, progress=rw.no_progress)
    run = execute(prepared, tmp_path / f"run-{len(numbers)}", workers=1, progress=rw.no_progress)
    row = run.tables["classification"].query("shift == 'none' and metric == 'accuracy'").iloc[0]
    return run, {**row[["value", "lo", "hi", "n", "groups"]], "status": run.verdict().status}


def test_copies_flip_no_verdict_and_are_said_everywhere(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        _, plain = accuracy(tmp_path, range(50))
    note = f"{COPIES}250 of 300 images, such as bright/050.png"
    with pytest.warns(UserWarning, match=f"test data: {COPIES}250 of 300 images"):
        run, copied = accuracy(tmp_path, [*range(50)] * 6)
    assert plain["status"] == copied["status"] == "inconclusive"
    assert (copied["groups"], copied["n"]) == (50, 300)
    assert (copied["lo"], copied["hi"]) == pytest.approx((plain["lo"], plain["hi"]))
    record = run.record.first.data
    assert (record.images, record.groups) == (300, 50)
    assert any(said.startswith(note) for said in record.notes)
    assert note in (run.path / "report.html").read_text()
    assert run.verify() == []
    checked, once = (rw.check(MODEL, str(tmp_path / images), sample=300) for images in ("300", "50"))
    assert any(note in line for line in checked.lines())
    assert checked.objects == once.objects == 50
    assert checked.interval == pytest.approx(once.interval)
    assert f"to {once.interval[1]:.3f}, 50 objects)" in str(checked)


# --------------------------------------------------------------------------------------------------- roles of a source


ROLES = ("train", "validation", "recorded", "outliers")


def opened(folder: Path, **numbers: Sequence[int]) -> Prepared:
    """A study whose roles hold pictures of these numbers: none is drawn in two of them, but as they say."""
    usual = {"test": range(200), "train": range(1000, 1400), "validation": range(2000, 2200)}
    usual |= {"recorded": range(3000, 3200), "outliers": range(4000, 4200)}
    files = {role: stored(folder / f"{role}.npz", [*own]) for role, own in (usual | numbers).items()}
    outliers, recorded = files.pop("outliers"), files.pop("recorded")
    content = {
        "name": "roles",
        "data": {**files, "recorded": {"night": recorded}},
        "outliers": {"photos": outliers},
        "models": {"m": {"onnx": "given"}},
        "protocols": {
            "situations": {"frequencies": {"none": 0.9, "night": 0.1}},
            "ood": {"sets": ["photos"], "transformed": []},
        },
    }
    return prepare(
        parse_study(content, "roles"), base=folder, models={"m": MODEL}, rehearse=False, progress=rw.no_progress
    )


WORDS = {
    "test": "test data test",
    "train": "training data train",
    "validation": "validation data validation",
    "recorded": "recorded set night",
    "outliers": "outliers photos",
}
PAIRS = [(one, other) for place, one in enumerate(WORDS) for other in [*WORDS][place + 1 :]]
FIRST = {"test": 0, "train": 1000, "validation": 2000, "recorded": 3000, "outliers": 4000}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_roles_of_a_source_share_a_few_images_at_most(one: str, other: str, tmp_path: Path) -> None:
    def shared(number: int) -> Prepared:
        own, images = FIRST[other], range(FIRST[one], FIRST[one] + number)
        return opened(tmp_path, **{other: [*images, *range(own + number, own + 200)]})

    both = sorted((WORDS[one], WORDS[other]))
    with pytest.raises(InputError, match=r"3 of 200 images of .* take them out of one of the two") as refused:
        shared(3)
    assert all(words in str(refused.value) for words in both)
    with pytest.raises(InputError, match=r"200 of 200 images of .*: name other images for one of the two"):
        shared(200)
    with pytest.warns(UserWarning, match="2 of 200 images of .* too, such as .*: take them out") as warned:
        prepared = shared(2)
    assert len(warned) == 1
    assert all(words in str(warned[0].message) for words in both)
    held_out = {"test": "test", "validation": "validation", "recorded": "night"}
    seen = {name: len(ids) for name, ids in prepared.seen[""].items() if ids}
    partner = other if one == "train" else one
    assert seen == ({held_out[partner]: 2} if "train" in (one, other) and partner in held_out else {})


def test_roles_that_share_nothing_are_not_remarked_upon(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert opened(tmp_path).seen == {"": {"test": [], "validation": [], "night": []}}


def test_the_share_is_that_of_the_smaller_set() -> None:
    with pytest.raises(InputError, match="2 of 100 images of small are images of large too"):
        check_apart({"large": pictures(range(1000))}, {"small": pictures([*range(2), *range(2000, 2098)])})
    with pytest.raises(InputError, match="2 of 100 images of small are images of large too"):
        check_apart({"small": pictures([*range(2), *range(2000, 2098)])}, {"large": pictures(range(1000))})


def test_sets_of_one_role_and_parts_of_a_drawn_set_may_be_compared() -> None:
    drawn = BuiltinDataset("signs", n=140)
    train, test = split_by_group(drawn, (0.5, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check_apart({"train": train}, {"test": test})
        check_apart({"one": drawn, "other": drawn}, {})
    with pytest.raises(InputError, match="30 of 30 images of half are images of test too"):
        check_apart({"test": BuiltinDataset("signs", n=140)}, {"half": BuiltinDataset("signs", n=30)})


class Theirs(Dataset):
    """A data set of a user's own class, whose images nobody can tell apart but by their id."""

    name, class_names, size, channels = "theirs", CLASSES, (16, 16), 3
    ids, groups, labels = ("a", "b", "c"), ("a", "b", "c"), np.array([0, 0, 0])

    def __len__(self) -> int:
        return 3

    def batch(self, rows: Any) -> Batch:
        return Batch(self.ids, images_of([2, 2, 2]), self.labels)

    def fingerprint(self) -> str:
        return "theirs"


def test_a_data_set_of_a_users_own_class_is_known_by_its_ids() -> None:
    assert identities(Theirs()) == ["theirs a", "theirs b", "theirs c"]
    with pytest.raises(InputError, match="3 of 3 images"):
        check_apart({"train": Theirs()}, {"test": Theirs()})
