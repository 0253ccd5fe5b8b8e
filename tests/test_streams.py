"""Streams of the benchmark of monitors: ratio, order, objects, and that they follow from ids and the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.errors import InputError
from roadworthy.protocols.monitoring.names import ORDERS
from roadworthy.protocols.monitoring.streams import Mixing, Side, Stream, mixed, unmixed


def side(images: int, per_object: int = 1, prefix: str = "") -> Side:
    ids = [f"{prefix}{number}" for number in range(images)]
    return Side(ids, [f"{prefix}object {number // per_object}" for number in range(images)])


def shown(stream: Stream, inside: Side, outside: Side) -> list[tuple[bool, str]]:
    pairs = zip(stream.ood.tolist(), stream.rows.tolist(), strict=True)
    return [(ood, (outside if ood else inside).ids[row]) for ood, row in pairs]


mixings = st.builds(
    Mixing,
    ratio=st.floats(0.1, 0.9),
    order=st.sampled_from(ORDERS),
    block=st.integers(1, 9),
    seed=st.integers(0, 5),
)


@settings(max_examples=60, deadline=None)
@given(mixings, st.integers(12, 60), st.integers(12, 60), st.integers(1, 5))
def test_no_image_twice_and_the_ratio_as_asked(mixing: Mixing, inside: int, outside: int, per_object: int) -> None:
    sides = side(inside, per_object), side(outside, per_object, "out ")
    stream = mixed(*sides, mixing)
    images = shown(stream, *sides)
    assert len({*images}) == len(images)
    assert abs(stream.ood.sum() - mixing.ratio * len(stream)) <= 0.5 + 1e-9
    longest = min(inside / (1 - mixing.ratio), outside / mixing.ratio)
    assert longest - 1 - 1e-6 <= len(stream) <= longest + 1e-6
    assert bool(stream.starts[0])


@settings(max_examples=60, deadline=None)
@given(mixings, st.integers(20, 60), st.integers(1, 4))
def test_an_object_that_both_sides_share_is_on_one_of_them(mixing: Mixing, images: int, per_object: int) -> None:
    both = side(images, per_object)
    try:
        stream = mixed(both, both, mixing, shared=True)
    except InputError:
        assert images * min(mixing.ratio, 1 - mixing.ratio) < 2 * per_object
        return
    groups = [{both.groups[row] for row in stream.rows[stream.ood == is_ood]} for is_ood in (False, True)]
    assert not groups[0] & groups[1]
    assert abs(stream.ood.sum() - mixing.ratio * len(stream)) <= 0.5 + 1e-9
    assert len({both.ids[row] for row in stream.rows}) == len(stream)
    smaller = min(mixing.ratio, 1 - mixing.ratio)
    assert len(stream) >= images - 1 - per_object / smaller


@settings(max_examples=30, deadline=None)
@given(mixings, st.randoms(use_true_random=False))
def test_a_stream_follows_from_ids_alone(mixing: Mixing, random) -> None:
    inside, outside = side(30, 3), side(24, 2, "out ")
    order = [*range(30)]
    random.shuffle(order)
    shuffled = Side([inside.ids[row] for row in order], [inside.groups[row] for row in order])
    one, other = mixed(inside, outside, mixing), mixed(shuffled, outside, mixing)
    if mixing.order != "runs":  # the images of an object follow the data
        assert shown(one, inside, outside) == shown(other, shuffled, outside)
    again = mixed(inside, outside, mixing)
    assert np.array_equal(one.rows, again.rows)
    assert np.array_equal(one.ood, again.ood)


def test_benchmarks_that_share_objects_deal_them_out_differently() -> None:
    both = side(40)
    one, other = (mixed(both, both, Mixing(name=name), shared=True) for name in ("fog", "noise"))
    assert {*one.rows[one.ood].tolist()} != {*other.rows[other.ood].tolist()}


def test_another_seed_is_another_stream() -> None:
    sides = side(40), side(40, prefix="out ")
    assert shown(mixed(*sides, Mixing(seed=0)), *sides) != shown(mixed(*sides, Mixing(seed=1)), *sides)


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, "0011001100110011"), (0.25, "0000001100000011")])
def test_blocks_alternate_by_the_ratio_and_begin_inside(ratio: float, expected: str) -> None:
    stream = mixed(side(round(16 * (1 - ratio))), side(round(16 * ratio), prefix="o"), Mixing(ratio, "blocks", 2))
    assert "".join(str(int(ood)) for ood in stream.ood) == expected


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8])
def test_gradual_shares_lie_on_a_straight_line(ratio: float) -> None:
    number = 1000
    inside, outside = side(round(number * (1 - ratio))), side(round(number * ratio), prefix="out ")
    stream = mixed(inside, outside, Mixing(ratio, "gradual"))
    shares = stream.ood.reshape(10, -1).mean(axis=1)
    first, last = (0, 2 * ratio) if ratio <= 0.5 else (2 * ratio - 1, 1)
    assert np.allclose(shares, first + (last - first) * (np.arange(10) + 0.5) / 10, atol=0.011)
    assert stream.ood.sum() == round(number * ratio)


def test_runs_keep_the_images_of_an_object_together_and_in_order() -> None:
    inside, outside = side(30, 5), side(20, 5, "out ")
    stream = mixed(inside, outside, Mixing(0.4, "runs"))
    groups = [(ood, (outside if ood else inside).groups[row]) for ood, row in zip(stream.ood, stream.rows, strict=True)]
    assert stream.starts.sum() == len({*groups}) == 10
    for group in {*groups}:
        rows = [row for own, row in zip(groups, stream.rows, strict=True) if own == group]
        assert rows == sorted(rows)


def test_a_stream_of_id_images_alone_shows_each_once() -> None:
    inside = side(30, 3)
    for order in ORDERS:
        stream = unmixed(inside, Mixing(order=order))
        assert not stream.ood.any()
        assert sorted(stream.rows) == [*range(30)]


def test_gather_takes_values_from_their_side() -> None:
    sides = side(10), side(10, prefix="out ")
    stream = mixed(*sides, Mixing())
    values = stream.gather(np.arange(10), 100 + np.arange(10))
    assert (values >= 100).tolist() == stream.ood.tolist()
    assert (values % 100).tolist() == stream.rows.tolist()


def test_too_few_images_and_impossible_ratios_are_refused() -> None:
    with pytest.raises(InputError, match="too few to be mixed"):
        mixed(side(1), side(1, prefix="out "), Mixing(0.01))
    with pytest.raises(InputError, match="between 0 and 1"):
        mixed(side(5), side(5, prefix="out "), Mixing(1.0))
