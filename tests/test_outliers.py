"""Outliers: one table of laws that all makers keep, and known answers for each."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from roadworthy.core.errors import InputError
from roadworthy.core.roles import OUTLIERS, Dataset, Outliers
from roadworthy.core.types import Batch
from roadworthy.data import OpenedDataset, Subset, open_dataset
from roadworthy.outliers import OutlierSet, Painted, make_outliers, outlier_sheet
from roadworthy.outliers.makers import Swirl, partners, random_order

MAKERS = ("uniform_noise", "normal_noise", "shuffled", "mixed", "swirl", "colour_swap", "foreign")
RANDOM = ("uniform_noise", "normal_noise", "shuffled", "mixed", "foreign")
DERIVED = ("shuffled", "mixed", "swirl", "colour_swap")


def pictures(n: int = 12, size: tuple[int, int] = (10, 14), channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, *size, channels), dtype=np.uint8)


def signs(n: int = 12, classes: int = 3, name: str = "signs", **options: Any) -> OpenedDataset:
    return open_dataset((pictures(n, **options), np.arange(n) % classes, [*"abc"[:classes]]), name=name)


def foreign(n: int = 40, **options: Any) -> OpenedDataset:
    return signs(n, name="elsewhere", seed=9, **{"size": (20, 8), **options})


def make(name: str, data: Dataset, seed: int = 0, **parameters: Any) -> OutlierSet:
    made = make_outliers(name, **parameters).make(data, seed=seed, foreign=foreign())
    assert isinstance(made, OutlierSet)
    return made


def everything(data: Dataset) -> NDArray[np.uint8]:
    return data.batch(range(len(data))).images


class Stranger(Dataset):
    """A data set of someone else's: nothing but the role."""

    name, class_names, size, channels = "stranger", ("x", "y"), (10, 14), 3
    ids = ("p", "q", "r")
    groups = ("g", "g", "h")
    labels = np.array([0, 1, 1])

    def __len__(self) -> int:
        return 3

    def fingerprint(self) -> str:
        return "f00"

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        index = range(3)[rows] if isinstance(rows, slice) else rows
        return Batch(tuple(self.ids[i] for i in index), pictures(3)[list(index)], self.labels[list(index)])


def test_the_makers_are_registered() -> None:
    assert set(MAKERS) <= set(OUTLIERS)
    assert all(OUTLIERS.get(name).name == name for name in MAKERS)


# Laws of all makers


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("channels", [3, 1])
def test_outliers_have_the_form_of_the_data(name: str, channels: int) -> None:
    data = signs(channels=channels)
    if (name, channels) == ("colour_swap", 1):
        with pytest.raises(InputError, match=r"the images of signs are grey: colour_swap would not change them"):
            make(name, data)
        return
    made = make(name, data)
    batch = made.batch(range(12))
    assert (len(made), made.size, made.channels) == (12, data.size, channels)
    assert batch.images.shape == (12, 10, 14, channels)
    assert (made.class_names, made.labels.tolist(), batch.labels.tolist()) == (("outlier",), [0] * 12, [0] * 12)
    assert batch.ids == made.ids
    assert batch.group == made.groups
    assert (batch.boxes, batch.masks, dict(batch.conditions)) == (None, None, {})
    assert made.batch([]).images.shape == (0, 10, 14, channels)
    assert len(np.unique(batch.images.reshape(12, -1), axis=0)) == 12


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(st.integers(0, 11), max_size=20), seed=st.integers(0, 3))
def test_neither_order_nor_batch_changes_a_pixel(name: str, rows: list[int], seed: int) -> None:
    made, again = make(name, signs(), seed), make(name, signs(), seed)
    whole = everything(again)
    assert np.array_equal(made.batch(rows).images, whole[rows])
    assert made.batch(rows).ids == tuple(again.ids[row] for row in rows)


@pytest.mark.parametrize("name", MAKERS)
def test_the_source_is_left_as_it_is(name: str) -> None:
    array = pictures()
    data = open_dataset((array, np.arange(12) % 3))
    make(name, data).batch(slice(None))
    assert np.array_equal(array, pictures())


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_gives_other_outliers(name: str) -> None:
    one, other = make(name, signs(), 0), make(name, signs(), 1)
    assert one.fingerprint() != other.fingerprint()
    assert not np.array_equal(everything(one), everything(other))


@pytest.mark.parametrize("name", MAKERS)
def test_the_fingerprint_follows_source_parameters_and_size(name: str) -> None:
    made = make(name, signs())
    assert made.fingerprint() == make(name, signs()).fingerprint()
    smaller = made.resized((8, 8))
    assert everything(smaller).shape == (12, 8, 8, 3)
    assert smaller.fingerprint() != made.fingerprint()
    fresh = make(name, signs().resized((8, 8)))
    assert np.array_equal(everything(smaller), everything(fresh))
    assert made.batch([0]).images.shape == (1, 10, 14, 3)
    if name != "foreign":
        assert made.fingerprint() != make(name, signs(seed=1)).fingerprint()
    every = [make(other, signs()).fingerprint() for other in MAKERS]
    assert len(set(every)) == len(MAKERS)
    assert make("swirl", signs()).fingerprint() != make("swirl", signs(), strength=5).fingerprint()


@pytest.mark.parametrize("name", ["uniform_noise", "normal_noise", "shuffled"])
def test_data_with_equal_ids_gets_other_random_numbers(name: str) -> None:
    # A threshold chosen on noise must not be tested on the same noise.
    blank = [np.full((2, 8, 8, 3), value, np.uint8) for value in (1, 2)]
    for images in blank:
        images[:, ::2] += 100
    one, other = (everything(make(name, open_dataset((images, np.array([0, 1]))))) for images in blank)
    assert not np.array_equal(one > 50, other > 50)


@pytest.mark.parametrize("name", MAKERS)
def test_a_part_of_outliers_and_a_strangers_data_set_work(name: str) -> None:
    made = make(name, signs())
    assert np.array_equal(everything(Subset(made, [5, 2])), everything(made)[[5, 2]])
    strange = make(name, Stranger())
    assert everything(strange).shape == (3, 10, 14, 3)
    assert strange.fingerprint() != made.fingerprint()


def test_groups_are_those_of_the_source_where_its_images_are_in_them() -> None:
    for name in DERIVED:
        assert make(name, Stranger()).groups == ("g", "g", "h")
    assert make("uniform_noise", Stranger()).groups == ("uniform_noise/p", "uniform_noise/q", "uniform_noise/r")
    other = make_outliers("foreign").make(signs(), seed=0, foreign=Stranger())
    assert other.groups == ("stranger/g", "stranger/g", "stranger/h")


def test_memory_does_not_grow_with_the_set() -> None:
    images = np.broadcast_to(pictures(1, (64, 64)), (4_000, 64, 64, 3))
    data = open_dataset((images, np.arange(4_000) % 2))
    sets = [make(name, data) for name in ("uniform_noise", "shuffled", "mixed", "swirl")]
    for made in sets:
        made.__dict__["recipe"] = "known"
    tracemalloc.start()
    for made in sets:
        for start in range(0, 640, 128):
            made.batch(slice(start, start + 128))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 * 2**20, "more than a few batches of 1.5 MiB were held"


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("swirll", {}, "unknown outlier 'swirll': did you mean 'swirl'"),
        ("swirl", {"strenght": 3}, "unknown parameter of swirl outliers 'strenght': did you mean 'strength'"),
        ("swirl", {"strength": math.nan}, "strength must be a number from -100 to 100, not nan"),
        ("swirl", {"radius": 0}, "radius must be a number from 1 to 10000, not 0"),
        ("normal_noise", {"deviation": "wide"}, "deviation must be a number from 0.1 to 1000, not 'wide'"),
        ("normal_noise", {"mean": True}, "mean must be a number from 0 to 255, not True"),
        ("colour_swap", {"channels": "rgb"}, "channels must be the letters r, g and b in another order"),
        ("colour_swap", {"channels": [2, 1, 0]}, r"such as bgr, not \[2, 1, 0\]"),
        ("colour_swap", {"channels": "rrb"}, "not 'rrb'"),
    ],
)
def test_bad_parameters_get_one_sentence(name: str, parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_outliers(name, **parameters)


# Noise


def test_uniform_noise_is_uniform() -> None:
    values = everything(make("uniform_noise", signs(40, size=(64, 64))))
    counts = np.bincount(values.reshape(-1), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert abs(np.corrcoef(values[:, :, :-1].reshape(-1), values[:, :, 1:].reshape(-1))[0, 1]) < 0.01


@pytest.mark.parametrize(("mean", "deviation"), [(128.0, 64.0), (100, 10)])
def test_normal_noise_is_rounded_and_clipped_normal(mean: float, deviation: float) -> None:
    values = everything(make("normal_noise", signs(40, size=(64, 64)), mean=mean, deviation=deviation)).reshape(-1)
    edges = np.concatenate([[-np.inf], np.arange(255) + 0.5, [np.inf]])
    expected = np.diff(stats.norm.cdf(edges, mean, deviation)) * values.size
    counts = np.bincount(values, minlength=256)
    kept = expected > 50
    scaled = expected[kept] * counts[kept].sum() / expected[kept].sum()
    assert stats.chisquare(counts[kept], scaled).pvalue > 1e-4
    if mean == 128:
        assert counts[0] / values.size == pytest.approx(stats.norm.cdf(0.5, 128, 64), rel=0.05)
        assert counts[255] / values.size == pytest.approx(stats.norm.sf(254.5, 128, 64), rel=0.05)


def test_noise_looks_at_no_pixel_of_the_data() -> None:
    made = make("uniform_noise", Stranger())
    made.source.batch = None  # type: ignore[method-assign, assignment]
    assert everything(made).shape == (3, 10, 14, 3)


# Shuffled


@pytest.mark.parametrize("size", [(64, 64), (65, 64), (1, 1), (3, 5)])
@pytest.mark.parametrize("channels", [3, 1])
def test_shuffled_keeps_every_pixel_whole(size: tuple[int, int], channels: int) -> None:
    data = signs(4, size=size, channels=channels)
    for before, after in zip(everything(data), everything(make("shuffled", data)), strict=True):
        assert sorted(map(tuple, before.reshape(-1, channels))) == sorted(map(tuple, after.reshape(-1, channels)))


def test_every_order_of_few_places_is_equally_likely() -> None:
    rng = np.random.Generator(np.random.Philox(5))
    orders, counts = np.unique([random_order(rng, 4) for _ in range(12_000)], axis=0, return_counts=True)
    assert len(orders) == math.factorial(4)
    assert stats.chisquare(counts).pvalue > 1e-4


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 9000), seed=st.integers(0, 2**32))
def test_a_random_order_is_a_permutation(count: int, seed: int) -> None:
    order = random_order(np.random.Generator(np.random.Philox(seed)), count)
    assert np.array_equal(np.sort(order), np.arange(count))


# Mixed


@pytest.mark.parametrize("width", [2, 7, 64])
def test_mixed_joins_the_halves_of_two_classes(width: int) -> None:
    labels = np.repeat([0, 1, 2], [5, 3, 2])
    images = np.broadcast_to((np.arange(10, dtype=np.uint8) * 20)[:, None, None, None], (10, 4, width, 3)).copy()
    made = everything(make("mixed", open_dataset((images, labels))))
    left, right = made[:, 0, 0, 0] // 20, made[:, 0, -1, 0] // 20
    assert left.tolist() == list(range(10))
    assert (labels[left] != labels[right]).all()
    assert (made[:, :, : width // 2] == made[:, :1, :1]).all()
    assert (made[:, :, width // 2 :] == made[:, :1, -1:]).all()


def test_every_image_of_another_class_is_an_equally_likely_partner() -> None:
    labels = np.array([0, 0, 1, 1, 2])
    data = open_dataset((pictures(5), labels))
    drawn = np.array([partners(data, seed) for seed in range(1500)])
    for row in range(5):
        others = np.flatnonzero(labels != labels[row])
        values, counts = np.unique(drawn[:, row], return_counts=True)
        assert values.tolist() == others.tolist()
        assert stats.chisquare(counts).pvalue > 1e-4


def test_the_order_of_the_data_plays_no_part_in_the_pairs() -> None:
    data = signs()
    order = np.random.default_rng(3).permutation(12)
    turned = Subset(data, order.tolist())
    pairs = {data.ids[row]: data.ids[partner] for row, partner in enumerate(partners(data, 0))}
    assert {turned.ids[row]: turned.ids[partner] for row, partner in enumerate(partners(turned, 0))} == pairs


def test_mixed_needs_two_classes_and_two_columns() -> None:
    with pytest.raises(InputError, match="mixed outliers need images of at least two classes; those of signs are all"):
        make("mixed", signs(classes=1))
    with pytest.raises(InputError, match="at least 2 pixels wide"):
        make("mixed", signs(size=(4, 1)))


# Swirl


def test_a_swirl_of_no_strength_is_the_image() -> None:
    data = signs()
    assert np.array_equal(everything(make("swirl", data, strength=0)), everything(data))


@pytest.mark.parametrize("distance", [3.0, 8.0, 20.0])
@pytest.mark.parametrize("scale", [1, 3])
def test_a_swirl_turns_by_the_formula(distance: float, scale: int) -> None:
    """A spot at (r, phi) is found at phi - a(r): the image around a pixel shows what lay at phi + a(r)."""
    side = 64 * scale
    centre = (side - 1) / 2
    y, x = np.mgrid[:side, :side] - centre
    angle = 0.7
    spot = np.hypot(x - scale * distance * np.cos(angle), y - scale * distance * np.sin(angle)) / scale
    image = (250 * np.exp(-(spot**2) / 2)).astype(np.uint8)[None, :, :, None]
    data = open_dataset((image, np.array([0])))
    (swirled,) = everything(make("swirl", data, strength=1.5, radius=60))[..., 0].astype(float)
    mask = swirled * (np.abs(np.hypot(x, y) - scale * distance) < 1.0 * scale)
    found = np.arctan2((mask * y).sum(), (mask * x).sum())
    assert found == pytest.approx(angle - 1.5 * 10 ** (-3 * distance / 60), abs=0.06)


def test_the_default_swirl_agrees_with_its_definition_pixel_by_pixel() -> None:
    ramp = np.tile(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (64, 1, 1))[None]
    (made,) = everything(Swirl().make(open_dataset((ramp, np.array([0]))), seed=0))[..., 0]
    for row, column in ((32, 40), (20, 31), (45, 38)):
        y, x = row - 31.5, column - 31.5
        turn = 10 * 10 ** (-3 * math.hypot(x, y) / 100)
        source = 31.5 + x * math.cos(turn) - y * math.sin(turn)
        assert made[row, column] == pytest.approx(4 * source, abs=1)


def test_a_swirl_adds_no_black_rim() -> None:
    data = open_dataset((np.full((1, 32, 48, 3), 200, np.uint8), np.array([0])))
    assert (everything(make("swirl", data)) == 200).all()


# Colour swap


@pytest.mark.parametrize("channels", ["bgr", "grb", "brg", "gbr", "rbg"])
def test_colours_are_exchanged(channels: str) -> None:
    data = signs()
    before, after = everything(data), everything(make("colour_swap", data, channels=channels))
    for new, letter in enumerate(channels):
        assert np.array_equal(after[..., new], before[..., "rgb".index(letter)])


def test_grey_images_stored_as_colour_are_refused() -> None:
    grey = np.repeat(pictures(channels=1), 3, axis=3)
    with pytest.raises(InputError, match="are grey"):
        make("colour_swap", open_dataset((grey, np.arange(12) % 3)))
    grey[7, 0, 0, 0] ^= 1
    make("colour_swap", open_dataset((grey, np.arange(12) % 3)))


# Foreign


def test_foreign_images_are_drawn_without_replacement() -> None:
    data, other = signs(), foreign(40, size=(10, 14))
    made = make_outliers("foreign").make(data, seed=0, foreign=other)
    rows = [other.ids.index(image_id.removeprefix("elsewhere/")) for image_id in made.ids]
    assert len(set(rows)) == 12
    assert np.array_equal(everything(made), everything(other)[rows])
    assert made.name == "elsewhere"
    seen = {row for seed in range(40) for row in make_outliers("foreign").make(data, seed=seed, foreign=other).ids}
    assert len(seen) == 40


def test_too_few_foreign_images_are_all_taken_and_noted() -> None:
    made = make_outliers("foreign").make(signs(), seed=0, foreign=foreign(5))
    assert len(made) == 5
    assert made.notes == ("elsewhere holds 5 images, the tested data 12: all of them are taken",)
    assert make_outliers("foreign").make(signs(), seed=0, foreign=foreign(12)).notes == ()


def test_foreign_images_take_the_channels_of_the_data() -> None:
    colour, grey = foreign(12, size=(10, 14)), foreign(12, size=(10, 14), channels=1)
    maker = make_outliers("foreign")
    three = everything(maker.make(signs(), seed=0, foreign=grey))
    assert np.array_equal(three, np.repeat(everything(grey), 3, axis=3))
    one = everything(maker.make(signs(channels=1), seed=0, foreign=colour))
    luma = everything(colour) @ np.array([0.299, 0.587, 0.114])
    assert np.abs(one[..., 0] - luma).max() <= 0.51


def test_foreign_outliers_need_a_foreign_set() -> None:
    with pytest.raises(InputError, match="need a foreign data set: give one, such as builtin:scenery"):
        make_outliers("foreign").make(signs(), seed=0)


# One's own, a picture, real data


def test_a_maker_of_ones_own_needs_only_paint() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Upside(Painted):
        name: ClassVar[str] = "upside"
        lines: int

        def paint(self, source: OpenedDataset, rows: NDArray[np.int64], streams: object) -> NDArray[np.uint8]:
            return source.batch(rows.tolist()).images[:, ::-1]

    with pytest.raises(InputError, match=r"upside outliers lack their parameter \['lines'\]"):
        Upside.of({})
    made = Upside.of({"lines": 1}).make(signs(), seed=0)
    assert np.array_equal(everything(made), everything(signs())[:, ::-1])


def test_the_sheet_has_a_column_per_maker() -> None:
    makers: list[Outliers] = [make_outliers(name) for name in MAKERS]
    sheet = outlier_sheet(signs(size=(64, 64)), makers, rows=[0, 1], foreign=foreign())
    assert sheet.shape == (2 * 132 + 24, 8 * 132 + 4, 3)
    with pytest.raises(InputError, match="elsewhere holds 3 images, so there is none in row 5"):
        outlier_sheet(signs(), makers, rows=[5], foreign=foreign(3))


def test_the_python_in_the_docs_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent / "docs" / "outliers.md").read_text()
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            exec(block, names)
        assert (tmp_path / "outliers.png").stat().st_size < 300_000
        assert names["negatives"].batch([3, 1]).images.shape == (2, 64, 64, 3)
        assert np.array_equal(names["negatives"].batch([3, 1]).images[1], names["negatives"].batch([1]).images[0])
    finally:
        OUTLIERS._members.pop("negative", None)


def test_on_photographs_the_colours_stay_and_the_picture_does_not(shared_data: Path) -> None:
    data = open_dataset(shared_data / "gtsrb_test.npz", size=64, limit=40)
    before = everything(data).astype(float)
    for name, most in (("shuffled", 0.2), ("swirl", 0.95), ("mixed", 0.95)):
        after = everything(make(name, data)).astype(float)
        alike = [np.corrcoef(a.reshape(-1), b.reshape(-1))[0, 1] for a, b in zip(before, after, strict=True)]
        assert np.mean(alike) < most
        if name != "mixed":
            assert np.abs(before.mean(axis=(1, 2)) - after.mean(axis=(1, 2))).mean() < 8
