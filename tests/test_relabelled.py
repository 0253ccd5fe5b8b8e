"""Classes of a data set: some alone, some left out, others renamed, and labels in the order of other class names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import roadworthy as rw
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.data import OpenedDataset, Relabelled, Subset, open_dataset, split_by_group

NAMES = ["stop", "yield", "30", "50", "parking"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ten images of five classes with boxes, masks, tracks and a condition; none shows `parking`."""
    labels = np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 6, 3), dtype=np.uint8)
    boxes = np.tile([1, 1, 4, 5], (10, 1)).astype(np.float32)
    arrays = {"boxes": boxes, "masks": images[..., 0] > 99, "track": np.arange(10) // 2, "speed": np.arange(10)}
    path = tmp_path / "signs.npz"
    np.savez(path, images=images, labels=labels, class_names=np.array(NAMES), **arrays)
    return path


def names_of(data: Dataset) -> dict[str, str]:
    """The class name of every image by its id."""
    return {name: data.class_names[label] for name, label in zip(data.ids, data.labels.tolist(), strict=True)}


# ---------------------------------------------------------------- some classes


@pytest.mark.parametrize(
    ("options", "classes", "labels", "rows"),
    [
        ({"only": ["50", "stop"]}, ("stop", "50"), [0, 1, 0, 1, 0], [0, 3, 4, 7, 8]),
        ({"only": [50]}, ("50",), [0, 0], [3, 7]),
        ({"only": ["stop", "stop", "parking"]}, ("stop", "parking"), [0, 0, 0], [0, 4, 8]),
        ({"without": ["stop", "parking", "yield"]}, ("30", "50"), [0, 1, 0, 1], [2, 3, 6, 7]),
        ({"rename": {"50": "limit", "30": "limit"}}, ("stop", "yield", "limit", "parking"), None, range(10)),
        ({"rename": {"50": "stop"}}, ("stop", "yield", "30", "parking"), [0, 1, 2, 0, 0, 1, 2, 0, 0, 1], range(10)),
        ({"rename": {"stop": "yield", "yield": "stop"}}, ("yield", "stop", "30", "50", "parking"), None, range(10)),
        (
            {"only": ["30", "50"], "rename": {"30": "limit", "stop": "halt"}},
            ("limit", "50"),
            [0, 1, 0, 1],
            [2, 3, 6, 7],
        ),
        ({"rename": {}}, tuple(NAMES), None, range(10)),
    ],
)
def test_classes_are_chosen_and_renamed(
    file: Path, options: dict[str, Any], classes: tuple[str, ...], labels: list[int] | None, rows: Any
) -> None:
    whole, part = open_dataset(file), open_dataset({"npz": file, **options})
    assert part.class_names == part.table.class_names == classes
    assert part.ids == tuple(whole.ids[row] for row in rows)
    if labels is not None:
        assert part.labels.tolist() == labels
    renamed = {str(old): new for old, new in options.get("rename", {}).items()}
    expected = names_of(whole)
    assert names_of(part) == {name: renamed.get(expected[name], expected[name]) for name in part.ids}
    read, stored = part.batch(slice(None)), whole.batch(list(rows))
    assert read.labels.tolist() == part.labels.tolist()
    for column in ("images", "boxes", "masks"):
        np.testing.assert_array_equal(getattr(read, column), getattr(stored, column))
    np.testing.assert_array_equal(read.conditions["speed"], stored.conditions["speed"])
    assert read.group == stored.group == part.groups


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["stopp"]}, "unknown class of signs 'stopp': did you mean 'stop'"),
        ({"without": ["yeild"]}, "did you mean 'yield'"),
        ({"rename": {"parkin": "p"}}, "did you mean 'parking'"),
        ({"only": ["stop"], "without": ["30"]}, "give one of the two"),
        ({"only": []}, "only is a list of class names, at least one"),
        ({"only": "stop"}, "only is a list of class names"),
        ({"without": {"stop": 1}}, "without is a list of class names"),
        ({"without": NAMES}, "no image of the classes that are left"),
        ({"only": ["parking"]}, "no image of the classes that are left"),
        ({"only": [False]}, "put the name between quotes"),
        ({"rename": {"stop": None}}, "put the name between quotes"),
        ({"rename": ["stop"]}, "rename maps class names"),
        ({"onyl": ["stop"]}, "did you mean 'only'"),
    ],
)
def test_choices_that_cannot_be_made(file: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_dataset({"npz": file, **options})


def test_every_kind_of_data_set_takes_them(file: Path) -> None:
    images, labels = np.zeros((3, 8, 8, 3), np.uint8), np.array([0, 1, 2])
    assert open_dataset((images, labels, NAMES[:3]), only=["30"]).ids == ("2",)
    assert open_dataset(file, without=["stop"]).class_names == ("yield", "30", "50", "parking")
    assert open_dataset(open_dataset(file), rename={"stop": "halt"}).class_names[0] == "halt"
    assert open_dataset({"builtin": "signs", "n": 28, "seed": 3, "only": ["stop"]}).class_names == ("stop",)
    assert open_dataset({"npz": file, "only": ["30"]}, only=["50"]).class_names == ("30",), "the mapping counts"


def test_the_limit_chooses_among_the_classes_that_are_left(file: Path) -> None:
    part = open_dataset({"npz": file, "only": ["stop", "30"], "limit": 4})
    assert sorted(names_of(part).values()) == ["30", "30", "stop", "stop"]
    assert part.batch([0, 1]).labels.tolist() == part.labels[:2].tolist()
    assert len(open_dataset({"npz": file, "only": ["stop", "30"], "limit": 40})) == 5


def test_what_is_left_out_is_noted(file: Path) -> None:
    assert open_dataset(file).notes[0] == "1 of 5 classes have no images: 'parking'"
    notes = open_dataset({"npz": file, "without": ["stop", "parking"]}).notes
    assert notes[-1] == "3 of 10 images are left out, of the classes 'stop', 'parking'"
    assert not any("have no images" in note for note in notes), "that is no longer true"


def test_fingerprints_stay_where_nothing_is_asked_and_change_with_the_classes(file: Path) -> None:
    whole = open_dataset(file)
    assert open_dataset({"npz": file}).fingerprint() == whole.fingerprint()
    options = ({"only": ["stop"]}, {"without": ["stop"]}, {"rename": {"stop": "halt"}}, {"without": ["parking"]})
    prints = {open_dataset({"npz": file, **chosen}).fingerprint() for chosen in options}
    assert len(prints | {whole.fingerprint()}) == 5
    again = open_dataset({"npz": file, "only": ["yield", "30", "50", "parking"]})
    assert again.fingerprint() == open_dataset({"npz": file, "without": ["stop"]}).fingerprint(), "the same data"


def test_what_is_chosen_is_a_data_set_like_others(file: Path) -> None:
    part = open_dataset({"npz": file, "without": ["stop"]}, size=16)
    assert part.size == (16, 16)
    assert part.batch([0]).images.shape == (1, 16, 16, 3)
    small = part.resized((4, 4))
    assert (small.batch([0]).images.shape, small.native_size()) == ((1, 4, 4, 3), (8, 6))
    assert small.fingerprint() != part.fingerprint()
    assert len(part.content(range(len(part)))) == len(part)
    assert sum(map(len, split_by_group(part, (0.5, 0.5)))) == len(part)
    with pytest.raises(IndexError):
        part.batch([len(part)])


# ---------------------------------------------------------------- the order of other classes


def test_labels_follow_the_names() -> None:
    data = open_dataset((np.zeros((3, 8, 8, 1), np.uint8), np.array([0, 1, 1]), ["stop", "yield"]))
    view = Relabelled(data, ["yield", "parking", "stop"])
    assert view.class_names == ("yield", "parking", "stop")
    assert view.labels.tolist() == view.batch(slice(None)).labels.tolist() == [2, 0, 0]
    assert (view.ids, view.groups, view.name) == (data.ids, data.groups, data.name)
    assert Relabelled(view, data.class_names).fingerprint() == data.fingerprint(), "there and back"
    assert data.labels.tolist() == [0, 1, 1]


def test_unknown_classes_are_refused_where_they_have_images() -> None:
    images = np.zeros((2, 8, 8, 1), np.uint8)
    data = open_dataset((images, np.array([0, 0]), ["stop", "hump"]))
    assert Relabelled(data, ["yield", "stop"]).labels.tolist() == [1, 1], "no image is a hump"
    with pytest.raises(UnknownName, match="unknown class in data set data 'stop': did you mean 'stopp'"):
        Relabelled(data, ["stopp", "hump"])
    with pytest.raises(UnknownName, match="unknown class of data 'halt'"):
        Relabelled(data, ["stop"], rename={"halt": "stop"})
    with pytest.raises(InputError, match="class names must be unique"):
        Relabelled(data, ["stop", "stop"])


class Own(Dataset):
    """A data set of somebody's own, which knows nothing of ours."""

    name, class_names, size, channels = "own", ("b", "a"), (8, 8), 1
    ids, groups, labels = ("x", "y"), ("x", "x"), np.array([0, 1])

    def __len__(self) -> int:
        return 2

    def fingerprint(self) -> str:
        return "0" * 64

    def batch(self, rows: Any) -> Batch:
        whole = Batch(self.ids, np.zeros((2, 8, 8, 1), np.uint8), self.labels, group=self.groups)
        return whole.take(rows)


def test_data_sets_of_others_are_relabelled() -> None:
    view = Relabelled(Own(), ("a", "b"))
    assert isinstance(view, OpenedDataset)
    assert view.batch([1]).labels.tolist() == [0]
    assert view.fingerprint() != Subset(Own(), [0, 1]).fingerprint()


@settings(max_examples=30, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=9), order=st.permutations(NAMES), data=st.data())
def test_no_image_changes_its_class(labels: list[int], order: list[str], data: Any) -> None:
    images = np.zeros((len(labels), 4, 4, 1), np.uint8)
    whole = open_dataset((images, np.array(labels), NAMES))
    assert names_of(Relabelled(whole, order)) == names_of(whole)
    kept = data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    expected = {name: of for name, of in names_of(whole).items() if of in kept}
    if expected:
        chosen = open_dataset(whole, only=kept)
        assert names_of(chosen) == expected
        assert list(chosen.class_names) == [name for name in NAMES if name in kept]
    else:
        with pytest.raises(InputError, match="no image"):
            open_dataset(whole, only=kept)


def test_belgian_signs_that_german_drivers_know(shared_data: Path) -> None:
    """A set of another country as novel classes and as known ones, with the classes of the German set."""
    belgian = open_dataset(shared_data / "btsc_test.npz")
    german = open_dataset({"npz": shared_data / "gtsrb_test.npz", "limit": 43})
    theirs, ours = belgian.class_names[int(belgian.labels[0])], german.class_names[14]
    shared = open_dataset({"npz": shared_data / "btsc_test.npz", "only": [theirs], "rename": {theirs: ours}})
    view = Relabelled(shared, german.class_names)
    assert set(view.labels.tolist()) == {14}
    novel = open_dataset({"npz": shared_data / "btsc_test.npz", "without": [theirs]})
    assert len(novel) + len(view) == len(belgian)


def test_the_page_on_data_is_right() -> None:
    page = (Path(__file__).parent.parent / "docs" / "data.md").read_text().partition("## Some classes, other names")[2]
    entries = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    test, unknown = open_dataset(entries["data"]["test"]), open_dataset(entries["outliers"]["unknown signs"])
    assert (len(test.class_names), unknown.class_names) == (11, ("hump", "parking"))
    assert "stopping ban" in test.class_names
    assert not {"hump", "parking", "no parking"} & set(test.class_names)
    names: dict[str, Any] = {"rw": rw}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    assert set(names["view"].labels.tolist()) == {5, 12}
