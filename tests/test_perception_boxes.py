"""Boxes as targets of a network, and their losses."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.models.perception.box_targets import PARAMETRISATIONS, BoxTargets

torch = pytest.importorskip("torch")
from roadworthy.models.perception.losses import LOSS_FUNCTIONS, box_diou, box_iou  # noqa: E402

shares = st.floats(0.001, 0.499)
true_boxes = st.tuples(shares, shares, shares, shares).map(
    lambda box: (0.5 - box[0], 0.5 - box[1], 0.5 + box[2], 0.5 + box[3])
)
coordinates = st.integers(-6, 6).map(lambda value: value / 2)
any_boxes = st.tuples(coordinates, coordinates, coordinates, coordinates)


def targets_of(parametrisation: str) -> BoxTargets:
    return BoxTargets(parametrisation, (0.45, 0.55, 0.3, 0.2) if parametrisation == "anchor" else None)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@given(box=true_boxes)
@settings(max_examples=25, deadline=None)
def test_decode_is_the_inverse_of_encode_in_numpy_and_in_torch(parametrisation: str, box: tuple[float, ...]) -> None:
    targets, corners = targets_of(parametrisation), np.array([box])
    rows = targets.encode(corners)
    np.testing.assert_allclose(targets.decode(rows), corners, atol=1e-12)
    decoded = targets.decoder()(torch.from_numpy(rows.astype(np.float32))).numpy()
    np.testing.assert_allclose(decoded, corners, atol=1e-6)


def test_anchor_follows_the_equations_of_the_paper() -> None:
    corners = np.array([[0.0, 0.0, 0.4, 0.2], [0.4, 0.2, 0.8, 0.8]])
    targets = BoxTargets.of_training("anchor", corners)
    assert targets.anchor == pytest.approx((0.4, 0.3, 0.4, 0.4))
    t_x, t_y, t_w, t_h = targets.encode(corners)[1]
    assert (t_x, t_y, t_w, t_h) == pytest.approx(((0.6 - 0.4) / 0.4, (0.5 - 0.3) / 0.4, 0.0, np.log(0.6 / 0.4)))
    width, centre = np.exp(t_w) * 0.4, t_x * 0.4 + 0.4
    x0, y0, x1, y1 = targets.decode_pixels(np.array([[t_x, t_y, t_w, t_h]]), (100, 50))[0]
    assert (x0, x1) == pytest.approx(((centre - width / 2) * 50, (centre + width / 2) * 50))
    assert (y0, y1) == pytest.approx((20, 80))


def test_no_answer_decodes_to_an_infinite_box() -> None:
    wild = torch.full((1, 4), 1e4)
    assert torch.isfinite(targets_of("anchor").decoder()(wild)).all()
    assert np.isfinite(targets_of("anchor").decode(wild.numpy())).all()


def test_wrong_targets_are_refused() -> None:
    with pytest.raises((InputError, UnknownName), match="corners"):
        BoxTargets("polar")
    with pytest.raises(InputError, match="anchor box is given"):
        BoxTargets("anchor")
    with pytest.raises(InputError, match="anchor box is given"):
        BoxTargets("corners", (0.5, 0.5, 1.0, 1.0))
    with pytest.raises(InputError, match="width and a height above 0"):
        BoxTargets("anchor", (0.5, 0.5, 0.0, 1.0))
    with pytest.raises(InputError, match="no logarithm"):
        targets_of("anchor").encode(np.array([[0.1, 0.1, 0.1, 0.3]]))


def exact_iou(one: tuple[float, ...], other: tuple[float, ...]) -> Fraction:
    """IoU by counting the cells of the grid that all edges draw."""
    a, b = ([Fraction(value) for value in box] for box in (one, other))
    columns, rows = sorted({a[0], a[2], b[0], b[2]}), sorted({a[1], a[3], b[1], b[3]})
    both = either = Fraction(0)
    for x0, x1 in itertools.pairwise(columns):
        for y0, y1 in itertools.pairwise(rows):
            inside = [box[0] <= x0 and x1 <= box[2] and box[1] <= y0 and y1 <= box[3] for box in (a, b)]
            both += (x1 - x0) * (y1 - y0) * all(inside)
            either += (x1 - x0) * (y1 - y0) * any(inside)
    return both / either if either else Fraction(0)


def exact_diou(one: tuple[float, ...], other: tuple[float, ...]) -> Fraction:
    a, b = ([Fraction(value) for value in box] for box in (one, other))
    xs, ys = (a[0], a[2], b[0], b[2]), (a[1], a[3], b[1], b[3])
    diagonal = (max(xs) - min(xs)) ** 2 + (max(ys) - min(ys)) ** 2
    distance = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    return exact_iou(one, other) - (distance / diagonal if diagonal else 0)


@given(one=any_boxes, other=any_boxes)
@settings(max_examples=120, deadline=None)
def test_iou_and_diou_are_exact_with_finite_gradients_for_crossed_and_flat_boxes(
    one: tuple[float, ...], other: tuple[float, ...]
) -> None:
    boxes, true = torch.tensor([one], requires_grad=True), torch.tensor([other])
    for measure, exact in ((box_iou, exact_iou), (box_diou, exact_diou)):
        value = measure(boxes, true)
        assert value.item() == pytest.approx(float(exact(one, other)), abs=1e-6)
        (gradient,) = torch.autograd.grad(value.sum(), boxes)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("loss", LOSS_FUNCTIONS)
def test_every_loss_is_0_at_the_truth_and_falls_on_the_way_there(loss: str) -> None:
    true = torch.tensor([[2.0, 2.0, 6.0, 8.0], [1.0, 3.0, 5.0, 4.0]])
    boxes = (true + torch.tensor([[1.0, -1.0, 1.5, 1.0]])).requires_grad_()
    first = LOSS_FUNCTIONS[loss](boxes, true).item()
    for _ in range(60):
        (gradient,) = torch.autograd.grad(LOSS_FUNCTIONS[loss](boxes, true), boxes)
        boxes = (boxes.detach() - 0.03 * gradient.sign()).requires_grad_()
    assert LOSS_FUNCTIONS[loss](true, true).item() == pytest.approx(0, abs=1e-6)
    assert LOSS_FUNCTIONS[loss](boxes, true).item() < 0.15 * first


def test_mae_and_mse_by_hand() -> None:
    boxes, true = torch.tensor([[0.0, 0.0, 2.0, 4.0]]), torch.tensor([[1.0, 0.0, 2.0, 1.0]])
    assert LOSS_FUNCTIONS["mae"](boxes, true).item() == 1.0
    assert LOSS_FUNCTIONS["mse"](boxes, true).item() == 2.5
