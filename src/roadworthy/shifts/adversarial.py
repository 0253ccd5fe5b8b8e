"""Attacks: small changes of an image, bounded by epsilon, that make a model err.

An attack is a shift that knows the model it attacks: `bound(model)` gives it one, and its parameters then hold that
model's fingerprint, so that the stimulus of one model's attack is never taken for another's. Images stay uint8: every
change is a whole number of pixel values, cut to 0..255, since nothing finer reaches an 8-bit image.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import Streams
from roadworthy.core.registry import Registry
from roadworthy.core.roles import Model, padded
from roadworthy.core.types import Batch, Images, Prediction
from roadworthy.shifts.base import Ranged

Floats = NDArray[np.float64]

QUERIED = "queried"
"""The stimulus that an attack's questions carry: stored predictions have no answers to it, and report that."""
QUERY_SIZE = 32
"""Images per question to the model, the last batch padded: an answer's last bits can depend on it."""
LEAST_PROBABILITY = 1e-12
OVERSHOOT = 0.02
"""DeepFool goes this share beyond the boundary it aims at."""
FIRST_SHARE = 0.8
"""The share of the image that the first square of the square attack covers."""
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of all queries after which the area of the square is halved (Andriushchenko et al. 2020)."""


@dataclass(frozen=True, kw_only=True)
class Attack(Ranged):
    """A change of the pixel values by at most `epsilon` that lowers a model's probability of the true class.

    `target` is the attacked model, set by `bound`; boxes and masks stay as they are.
    """

    target: Model | None = field(default=None, repr=False)

    NEEDS: ClassVar[frozenset[str]] = frozenset({"probabilities"})

    def __post_init__(self) -> None:
        if self.target is not None and not isinstance(self.target, Model):
            raise InputError(f"shift {self.name}: the attacked model is not a parameter; it is the model under test")
        super().__post_init__()

    def bound(self, model: Model) -> Self:
        """The same attack on this model; a model that lacks what the attack needs is an error."""
        if not model.capabilities >= self.NEEDS:
            raise InputError(
                f"shift {self.name} needs the gradient of model {model.name}, which it does not give: use a torch "
                "model or the attack square, which needs probabilities alone"
            )
        return replace(self, target=model)

    def parameters(self) -> dict[str, Any]:
        """The parameters and, once bound, the fingerprint of the attacked model."""
        parameters = {name: value for name, value in super().parameters().items() if name != "target"}
        return parameters if self.target is None else {**parameters, "attacked": self.target.fingerprint()}

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch with every image changed against the target."""
        if self.target is None:
            raise InputError(f"shift {self.name} attacks a model: give it one with bound(model)")
        if len(batch) and not 0 <= batch.labels.min() <= batch.labels.max() < self.target.num_classes:
            raise InputError(f"shift {self.name} needs a label of model {self.target.name} for every image")
        questions = replace(batch, stimulus=QUERIED)
        return batch.with_images(self._attacked(self.target, questions, streams) if len(batch) else batch.images)

    @abstractmethod
    def _attacked(self, model: Model, batch: Batch, streams: Streams) -> Images:
        """The changed images."""


@dataclass(frozen=True, kw_only=True)
class MaximumNorm(Attack):
    """An attack that may change every value by at most `epsilon`, a whole number of pixel values (8 is 8/255)."""

    epsilon: int = parameter(
        *(1, 2, 4, 8, 16), within=(0, 255), whole=True, neutral=0, quantity="largest change", unit="of 255 values"
    )


ATTACKS: Registry[type[Attack]] = Registry("attack")


@registered(ATTACKS, "fgsm")
class Fgsm(MaximumNorm):
    """Fast gradient sign: x' = clip(x + epsilon sign(dL/dx)), L the cross-entropy of the label (Goodfellow 2015).

    A value whose gradient is exactly 0 stays. Cheap, and weak against models whose probabilities are saturated.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({"input_gradient"})

    def _attacked(self, model: Model, batch: Batch, streams: Streams) -> Images:
        return _within(batch.images + self.epsilon * np.sign(_gradients(model, batch)), batch.images, self.epsilon)


@registered(ATTACKS, "pgd")
class Pgd(MaximumNorm):
    """Projected gradient: `steps` signed gradient steps within epsilon, from a random start (Madry et al. 2018).

    x_t+1 = clip(x_t + a sign(dL/dx_t), x - epsilon, x + epsilon) with a = max(1, round(2.5 epsilon / steps)). A value
    whose gradient is exactly 0 stays where its random start put it.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({"input_gradient"})

    steps: int = parameter(within=(1, 1000), whole=True, default=10)

    def _attacked(self, model: Model, batch: Batch, streams: Streams) -> Images:
        shape, reach = batch.images.shape[1:], self.epsilon
        starts = [rng.integers(-reach, reach, shape, endpoint=True) for rng in streams.each(batch.ids)]
        images = _within(batch.images + np.array(starts), batch.images, reach)
        step = max(1, round(2.5 * self.epsilon / self.steps))
        for _ in range(self.steps):
            gradient = _gradients(model, batch.with_images(images))
            images = _within(images + step * np.sign(gradient), batch.images, reach)
        return images


@registered(ATTACKS, "deepfool")
class DeepFool(Attack):
    """DeepFool: the shortest way over the nearest boundary, found by linear steps (Moosavi-Dezfooli et al. 2016).

    With f_k = log p_k - log p_y and w_k = df_k/dx, step by |f_k| w_k / |w_k|^2 for the k of the smallest |f_k| / |w_k|,
    until the image is given another class or `steps` are done. `epsilon` bounds the root mean square change of a
    value, in pixel values; a longer way is cut to that length. The `classes` that are most likely at the start are
    considered. An image that is misread already stays as it is.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({"input_gradient"})

    epsilon: float = parameter(0.5, 1.0, 2.0, 4.0, 8.0, within=(0, 255), neutral=0)
    steps: int = parameter(within=(1, 1000), whole=True, default=20)
    classes: int = parameter(within=(2, 100_000), whole=True, default=10)

    def _attacked(self, model: Model, batch: Batch, streams: Streams) -> Images:
        images = batch.images.copy()
        way = np.zeros(images.shape)
        scores = _scores(model, batch)
        rivals = _rivals(scores, batch.labels, self.classes - 1)
        active = np.flatnonzero(scores.argmax(axis=1) == batch.labels)
        for _ in range(self.steps):
            if not len(active):
                break
            now = batch.take(active.tolist()).with_images(images[active])
            step = linear_step(scores[active], now.labels, rivals[active], self._directions(model, now, rivals[active]))
            way[active] += step
            images[active] = self._cut(batch.images[active], way[active])
            scores[active] = _scores(model, now.with_images(images[active]))
            moved = np.abs(step).reshape(len(active), -1).any(axis=1)
            spent = _rms(way[active]) * (1 + OVERSHOOT) >= self.epsilon
            active = active[(scores[active].argmax(axis=1) == now.labels) & moved & ~spent]
        return images

    def _directions(self, model: Model, batch: Batch, rivals: NDArray[np.int64]) -> Floats:
        """The gradients (N, rivals, H, W, C) of log p_k - log p_y: the loss's by y minus the loss's by k."""
        of_label = _gradients(model, batch)
        return np.stack([of_label - _gradients(model, replace(batch, labels=labels)) for labels in rivals.T], axis=1)

    def _cut(self, images: Images, way: Floats) -> Images:
        """The images moved along their way, in whole pixel values, no farther than epsilon."""
        overshot = way * (1 + OVERSHOOT)
        length = _rms(overshot)[:, None, None, None]
        allowed = overshot * np.minimum(1.0, self.epsilon / np.maximum(length, 1e-300))
        change = np.rint(allowed)
        too_far = _rms(change) > self.epsilon
        change[too_far] = np.trunc(allowed[too_far])
        return np.asarray(np.clip(images + change, 0, 255), np.uint8)


@registered(ATTACKS, "square")
class Square(MaximumNorm):
    """Square attack: random squares of +-epsilon, kept where the true class loses (Andriushchenko et al. 2020).

    Needs no gradient: `queries` questions per image. It starts from vertical stripes; the squares shrink over time.
    """

    queries: int = parameter(within=(1, 100_000), whole=True, default=200)

    def _attacked(self, model: Model, batch: Batch, streams: Streams) -> Images:
        queries, (count, height, width, channels) = self.queries, batch.images.shape
        coins = (queries, channels)
        draws = [
            [rng.integers(2, size=(1, width, channels)), rng.random((queries, 2)), rng.integers(2, size=coins)]
            for rng in streams.each(batch.ids)
        ]
        stripes, corners, heads = (np.array(column) for column in zip(*draws, strict=True))
        signs = 2 * heads - 1
        best = batch.images.copy()
        score = self._score(model, batch)
        for query in range(queries):
            side = _side(query / queries, height, width)
            tried = best.copy()
            if query == 0:
                tried[:] = _within(batch.images + self.epsilon * (2 * stripes - 1), batch.images, self.epsilon)
            else:
                tops, lefts = (corners[:, query] * (height - side + 1, width - side + 1)).astype(int).T
                for image in range(count):
                    area = np.s_[image, tops[image] : tops[image] + side, lefts[image] : lefts[image] + side]
                    changed = batch.images[area] + self.epsilon * signs[image, query]
                    tried[area] = np.clip(changed, 0, 255)
            tried_score = self._score(model, batch.with_images(tried))
            better = tried_score < score
            best[better], score[better] = tried[better], tried_score[better]
        return best

    def _score(self, model: Model, batch: Batch) -> Floats:
        """The margin (N,) by which log p of the label exceeds the best other class."""
        scores = _scores(model, batch)
        rows = np.arange(len(scores))
        label_scores = scores[rows, batch.labels]
        scores[rows, batch.labels] = -np.inf
        return np.asarray(label_scores - scores.max(axis=1))


def linear_step(scores: Floats, labels: NDArray[np.int64], rivals: NDArray[np.int64], directions: Floats) -> Floats:
    """The shortest step (N, ...) to the nearest linear boundary between the label and one of its rivals.

        |f_k| w_k / |w_k|^2   for the k of the smallest |f_k| / |w_k|,   f_k = score_k - score_label

    scores (N, K); rivals (N, R) classes; directions (N, R, ...): the gradients w of f. Zero where all are zero.

    >>> linear_step(np.array([[3.0, 1.0]]), np.array([0]), np.array([[1]]), np.array([[[0.0, 2.0]]]))
    array([[0., 1.]])
    """
    rows = np.arange(len(scores))
    gap = np.abs(np.take_along_axis(scores, rivals, axis=1) - scores[rows, labels][:, None])
    flat = directions.reshape(*rivals.shape, -1).astype(np.float64)
    squares = np.einsum("nrd,nrd->nr", flat, flat)
    distance = np.divide(gap, np.sqrt(squares), out=np.full(gap.shape, np.inf), where=squares > 0)
    nearest = distance.argmin(axis=1)
    square = squares[rows, nearest]
    scale = np.divide(gap[rows, nearest], square, out=np.zeros(len(rows)), where=square > 0)
    return np.asarray((scale[:, None] * flat[rows, nearest]).reshape(len(rows), *directions.shape[2:]))


def _gradients(model: Model, batch: Batch) -> NDArray[np.float32]:
    """Gradients (N, H, W, C) of the loss of the label, asked for in batches of one size."""
    size, images = model.fixed_batch or QUERY_SIZE, range(len(batch))
    parts = [images[start : start + size] for start in images[::size]]
    gradients = np.concatenate([model.input_gradient(batch.take(padded(rows, size)))[: len(rows)] for rows in parts])
    finite = np.isfinite(gradients).reshape(len(gradients), -1).all(axis=1)
    if not finite.all():
        image = batch.ids[int(np.argmin(finite))]
        raise ModelError(
            f"model {model.name} gives a gradient that is not finite for image {image}: fix the model, or use the "
            "attack square, which needs probabilities alone"
        )
    return gradients


def _scores(model: Model, batch: Batch) -> Floats:
    """log p (N, K) up to a constant per image: the logits where the model gives them."""
    answer: Prediction = model.answer(batch, QUERY_SIZE)
    if answer.logits is not None:
        return answer.logits.astype(np.float64)
    return np.log(np.maximum(answer.probabilities.astype(np.float64), LEAST_PROBABILITY))


def _within(images: NDArray[Any], clean: Images, epsilon: int) -> Images:
    """Cut to epsilon around the clean images and to 0..255."""
    around = clean.astype(np.int64)
    return np.asarray(np.clip(images, np.maximum(around - epsilon, 0), np.minimum(around + epsilon, 255)), np.uint8)


def _rivals(scores: Floats, labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The likeliest other classes (N, at most count), the likeliest first."""
    others = scores.copy()
    others[np.arange(len(scores)), labels] = -np.inf
    return np.argsort(-others, axis=1, kind="stable")[:, : min(count, scores.shape[1] - 1)]


def _rms(change: Floats) -> Floats:
    return np.asarray(np.sqrt((change**2).reshape(len(change), -1).mean(axis=1)))


def _side(done: float, height: int, width: int) -> int:
    """The side of the square after a share of all queries is done."""
    share = FIRST_SHARE / 2 ** sum(done > point for point in HALVINGS)
    return max(1, min(round(math.sqrt(share * height * width)), min(height, width)))
