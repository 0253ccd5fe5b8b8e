"""Two tests for every monitor: `check_monitor`, that it keeps the role's promises; `check_usefulness`, that it helps.

Both raise an AssertionError that says what is wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import is_dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest_array
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.core.validation import parse_size
from roadworthy.data import Subset
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.table import Table
from roadworthy.metrics import binary_auroc
from roadworthy.models import softmax
from roadworthy.models.head import Head
from roadworthy.models.signals import Signals
from roadworthy.monitors import base
from roadworthy.monitors.base import NEEDS, Monitor
from roadworthy.monitors.fitted import CalibratedMonitor, FittedMonitor, represent_data
from roadworthy.monitors.learned import Learned, Rep

SIDE, CLASSES, UNITS, PASSES = 8, 4, 24, 8
CLOSE = 1e-5
CLOSE_ALONE = 1e-4
"""The same for one image by itself: a network uses other kernels there, and a monitor may magnify their rounding."""
THRESHOLDS = {
    "hinge": "threshold='hinge', where a linear support vector machine puts it",
    "exact": "threshold='exact', where the fewest decisions are wrong",
}
"""How a threshold against outliers can be found, and what that means."""
Size = int | str | Sequence[int]
BETTER_THAN_CHANCE = 0.6
"""Share of right decisions, and AUROC, above which a monitor is of use on plain outliers."""


def check_monitor(
    make: Callable[[], Monitor] | Monitor,
    *,
    model: Model | None = None,
    saves: bool = True,
    size: Size = SIDE,
    layer: str | None = None,
    width: int = UNITS,
) -> None:
    """Check that a monitor keeps the promises of the role; `make` is a monitor, or returns a new one each time.

    Shapes, refusals, the same results for the same images, saving and loading are looked at, not whether the monitor
    tells anything apart: see `check_usefulness`.

    model   one that gives what the monitor needs; default: a small network with every capability
    saves   False for a monitor that says it cannot be saved
    size    side of the images (32, "32x32" or (32, 32)), for a monitor or a model that needs more than 8 pixels
    layer   the name of the layer that the small network has, for a monitor that reads one by name; default: any name
    width   how many numbers that layer gives

    >>> from roadworthy.monitors.confidence import Msp
    >>> check_monitor(Msp)
    """
    make, side = _factory(make), _side(size)
    toy = ToyModel(side, layer, width)
    train, held_out, test, outliers = toy_data(side)
    model = model or toy
    with _promised("it must be made without arguments"):
        monitor = make()
    with _promised("the class must state what it is"):
        _check_class(monitor)
    with _promised("settings must be plain values"):
        monitor.check_savable(Learned())
    with _promised("what does not fit must be refused with an InputError"):
        _check_refusals(monitor, model, ToyModel(side, None, width), train, outliers)
    with _promised("fit must learn from training images", side):
        fitted = _built(monitor, model, train, outliers)
        _check_build(make(), fitted, model, train, outliers)
    with _promised("read must give one row of numbers per image", side):
        inside, outside, shown = (represent_data(fitted, model, data) for data in (held_out, outliers, test))
        _check_rows(fitted, model, test)
    with _promised("tune and rate must give a threshold on images inside alone"):
        alone = _check_alone(fitted, inside, shown)
        before = alone.score(shown)
    with _promised("tune and rate must give a threshold against outliers"):
        for threshold in THRESHOLDS:
            calibrated = fitted.calibrate(inside, outside, threshold=threshold)
            _check_threshold(calibrated, shown)
    with _promised("nothing may change what was made before"):
        assert np.array_equal(alone.score(shown), before), "a second calibration must leave the first as it is"
        assert fitted.fingerprint() == replace(fitted, monitor=make()).fingerprint(), "settings must not change"
    if saves:
        with _promised("save and load must keep the monitor"):
            _check_saved(calibrated, model, test)
    with _promised("decide must answer for one image"):
        _check_decision(calibrated, model, test)


def check_usefulness(
    make: Callable[[], Monitor] | Monitor,
    *,
    model: Model | None = None,
    size: Size = SIDE,
    layer: str | None = None,
    width: int = UNITS,
) -> None:
    """Check that a monitor tells plain outliers, flat grey noise, from images of four patterns, better than chance.

    This is no promise of the role: a monitor for one special kind of outliers may fail it. The parameters are those of
    `check_monitor`, which comes first.

    >>> from roadworthy.monitors.confidence import Msp
    >>> check_usefulness(Msp)
    """
    make, side = _factory(make), _side(size)
    train, held_out, test, outliers = toy_data(side)
    model = model or ToyModel(side, layer, width)
    fitted = _built(make(), model, train, outliers)
    inside, outside, shown = (represent_data(fitted, model, data) for data in (held_out, outliers, test))
    for threshold in THRESHOLDS:
        calibrated = fitted.calibrate(inside, outside, threshold=threshold)
        right = (calibrated.reject(outside).mean() + 1 - calibrated.reject(shown).mean()) / 2
        assert right > BETTER_THAN_CHANCE, (
            f"it is of no use on plain outliers: calibrated on them ({THRESHOLDS[threshold]}), only {right:.0%} of the "
            f"decisions are right; {_which_scored_higher(calibrated.score(shown), calibrated.score(outside))}"
        )
    scores = np.concatenate([calibrated.score(shown), calibrated.score(outside)])
    area = binary_auroc(scores, np.arange(len(scores)) < len(shown))
    assert area > BETTER_THAN_CHANCE, (
        f"it is of no use on plain outliers: higher scores must mean in-distribution, and the AUROC is {area:.2f}"
    )


def _factory(make: Callable[[], Monitor] | Monitor) -> Callable[[], Monitor]:
    """What makes a new monitor; of a monitor, copies with its settings."""
    if not isinstance(make, Monitor):
        return make
    return partial(replace, make) if is_dataclass(make) else partial(copy, make)


def _side(size: Size) -> int:
    """The side of square images; other sizes are an `InputError`.

    >>> _side(32), _side("32x32"), _side((32, 32))
    (32, 32, 32)
    """
    height, width = parse_size(size) or (SIDE, SIDE)
    if height != width:
        raise InputError(f"the images that are shown to the monitor are square: give one number as size, not {size!r}")
    return height


def _which_scored_higher(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> str:
    """Which of the scores are higher, images inside or outliers, and which must be."""
    medians = float(np.median(inside)), float(np.median(outside))
    if medians[0] == medians[1]:
        return f"half of either side score {medians[0]:.3g} or more: higher scores must mean in-distribution"
    higher = "images inside score higher" if medians[0] > medians[1] else "outliers score higher"
    return (
        f"{higher} (median {medians[0]:.3g} inside, {medians[1]:.3g} of outliers), and higher scores must mean "
        "in-distribution"
    )


@contextmanager
def _promised(promise: str, side: int | None = None) -> Iterator[None]:
    """Report any error inside as a break of this promise; an `AssertionError` names its promise itself.

    `side` is that of the images that were shown, where this may be the cause.
    """
    shown = f" (shown were images of {side}x{side} pixels: give `size=` where it needs others)" if side else ""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{promise}: {type(error).__name__}: {error}{shown}") from error


def _check_class(monitor: Monitor) -> None:
    assert isinstance(monitor, Monitor), f"it must be a Monitor, not {type(monitor).__name__}"
    name, needs = getattr(monitor, "name", None), monitor.needs
    assert isinstance(name, str), f"the class must state its name, a text, not {name!r}"
    assert name, "the class must state its name, a text that is not empty"
    assert isinstance(needs, frozenset), f"needs must be a frozenset of words, not {needs!r}"
    assert needs <= NEEDS, (
        f"needs must be some of {', '.join(sorted(NEEDS))}, not {', '.join(map(repr, needs - NEEDS))}"
    )
    count = monitor.classes
    is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 1
    assert is_count, f"classes must be a whole number of at least 1, not {count!r}"
    roles = monitor.learns_from
    assert isinstance(roles, tuple) and base.TRAIN in roles and set(roles) <= set(base.ROLES), (  # noqa: PT018
        f"learns_from must be a tuple of {', '.join(base.ROLES)}, {base.TRAIN} among them, not {roles!r}"
    )


def _built(monitor: Monitor, model: Model, train: Dataset, outliers: Dataset) -> FittedMonitor:
    return monitor.build(model, train, outliers=outliers if monitor.learns_from_outliers else None)


def _check_alone(fitted: FittedMonitor, inside: Rep, shown: Rep) -> CalibratedMonitor:
    calibrated = fitted.calibrate(inside)
    rejected = float(calibrated.reject(inside).mean())
    assert rejected <= 0.05 + 1e-9, f"calibrated inside alone, it rejects {rejected:.0%} of those images, not 5 %"
    share = calibrated.reject(shown).mean()
    assert share <= 0.25, f"calibrated inside alone, it rejects {share:.0%} of new images, far more than 5 %"
    _check_threshold(calibrated, shown)
    return calibrated


def _check_refusals(monitor: Monitor, model: Model, lacking: Model, train: Dataset, outliers: Dataset) -> None:
    for need in monitor.needs - {"input", "probabilities"}:
        lacking.capabilities = model.capabilities - {base.CAPABILITY.get(need, need)}
        message = _refused(lambda: _built(monitor, lacking, train, outliers))
        assert need in message, f"a model without {need} must be refused by name, not with {message!r}"
    if monitor.learns:
        empty = _refused(lambda: _built(monitor, model, _Empty(train, [0]), outliers))
        assert "holds no images" in empty, "an empty training set must be refused"
        assert _refused(lambda: monitor.build(model)), "build without training images must be refused"


class _Empty(Subset):
    """A data set without images, which none of ours can be."""

    def __len__(self) -> int:
        return 0


def _check_build(twin: Monitor, fitted: FittedMonitor, model: Model, train: Dataset, outliers: Dataset) -> None:
    again = _built(twin, model, train, outliers)
    assert again.fingerprint() == fitted.fingerprint(), "equal settings must have equal fingerprints"
    assert _hashes(again) == _hashes(fitted), "built again on the same data, it must learn the same"
    assert not any(array.flags.writeable for array in fitted.state.values()), "what was learned must not be writable"
    if twin.learns:
        other = _built(twin, model, Subset(train, range(len(train) // 2)), outliers)
        assert other.fingerprint() != fitted.fingerprint(), "other training data must change the fingerprint"
        same = fitted.state and _hashes(other) == _hashes(fitted)
        assert not same, "other training data must change what was learned"


def _check_rows(fitted: FittedMonitor, model: Model, data: Dataset) -> None:
    batch = data.batch(slice(None))
    whole = fitted.represent(model, batch)
    assert whole.dtype == np.float32, f"what read gives must be kept as float32, not {whole.dtype}"
    assert (whole.ndim, len(whole)) == (2, len(batch)), f"what read gives must be (N,) or (N, D), not {whole.shape}"
    scale = CLOSE * max(1.0, float(np.abs(whole).max()))
    again = fitted.represent(model, batch)
    assert np.array_equal(whole, again), "read must give the same for the same images"
    shared = Signals(model, batch)
    _ = shared.prediction, [fitted.represent_signals(shared)]
    assert np.array_equal(whole, fitted.represent_signals(shared)), "signals that others read must give the same"
    order = np.arange(len(batch))[::-1]
    backwards = fitted.represent(model, batch.take(order.tolist()))
    assert np.abs(backwards - whole[order]).max() <= scale, "what read gives must not depend on the order of the images"
    pieces = (slice(0, 7), slice(7, None))
    parts = np.concatenate([fitted.represent(model, batch.take(piece)) for piece in pieces])
    assert np.abs(parts - whole).max() <= scale, "what read gives must not depend on the batch"
    single = fitted.represent(model, batch.take(slice(3, 4)), size=1)
    assert np.abs(single - whole[3:4]).max() <= scale * CLOSE_ALONE / CLOSE, (
        "read must give the same for one image alone"
    )


def _check_threshold(calibrated: CalibratedMonitor, rows: Rep) -> None:
    scores = calibrated.score(rows)
    assert scores.shape == (len(rows),), "there must be one score per image"
    assert np.isfinite(scores).all(), "scores must be finite"
    assert np.array_equal(calibrated.reject(rows), scores < calibrated.threshold), "reject must be score < threshold"
    bad = rows.copy()
    bad[0, 0] = np.nan
    assert "NaN" in _refused(lambda: calibrated.score(bad)), "a NaN in a representation must be refused"
    assert _refused(lambda: calibrated.fitted.calibrate(rows[:0])), "calibration on an empty set must be refused"


def _check_saved(calibrated: CalibratedMonitor, model: Model, data: Dataset) -> None:
    batch, fitted = data.batch(slice(None)), calibrated.fitted
    rows = fitted.represent(model, batch)
    with tempfile.TemporaryDirectory() as folder:
        calibrated.save(folder)
        for path in Path(folder).rglob("*"):
            assert path.suffix in (".json", ".npz", ".safetensors"), (
                f"{path.name}: save JSON and plain arrays, no pickle"
            )
            if path.suffix == ".npz":
                with np.load(path, allow_pickle=False) as arrays:
                    assert all(arrays[key].dtype != object for key in arrays.files)
        loaded = CalibratedMonitor.load(folder, model, kind=type(fitted.monitor))
    assert loaded.fitted.monitor == fitted.monitor, "settings must come back from save and load"
    assert loaded.fingerprint() == calibrated.fingerprint(), "the fingerprint must come back from save and load"
    again = loaded.fitted.represent(model, batch)
    assert np.array_equal(again, rows), "save and load must keep every bit of the representations"
    assert np.array_equal(loaded.score(again), calibrated.score(rows)), "save and load must keep every bit of scores"
    assert loaded.threshold == calibrated.threshold, "save and load must keep the threshold"


def _check_decision(calibrated: CalibratedMonitor, model: Model, data: Dataset) -> None:
    image = data.batch(slice(0, 1))
    decision, score = calibrated.decide(model, image), calibrated.score(calibrated.fitted.represent(model, image))
    assert decision.shape == (1,), "decide must answer once per image"
    assert decision.dtype == np.bool_, f"decide must answer bools, not {decision.dtype}"
    near = abs(score[0] - calibrated.threshold) <= CLOSE_ALONE * max(1.0, abs(score[0]))
    assert near or decision[0] == (score[0] < calibrated.threshold), "decide must reject what reject does"


def _hashes(fitted: FittedMonitor) -> dict[str, str]:
    return {key: digest_array(np.asarray(array)) for key, array in fitted.state.items()}


def _refused(action: Callable[[], object]) -> str:
    """The sentence of the `InputError` that an action raises; empty where it raises none."""
    try:
        action()
    except InputError as error:
        return str(error)
    return ""


def _patterns(size: int) -> NDArray[np.float64]:
    """The pattern of each class, (K, size, size, 3), of -1 and 1."""
    return np.random.default_rng(1).choice([-1.0, 1.0], (CLASSES, size, size, 3))


def toy_data(size: int = SIDE) -> tuple[Dataset, Dataset, Dataset, Dataset]:
    """Training, held-out and test images of four patterns under noise, and outliers: flat grey noise."""
    rng, patterns = np.random.default_rng(0), _patterns(size)
    sets = []
    for name, count in (("train", 240), ("held_out", 200), ("test", 100)):
        labels = np.arange(count) % CLASSES
        contrast = rng.uniform(0.7, 1.0, (count, 1, 1, 1))
        images = 128 + 100 * contrast * patterns[labels] + rng.normal(0, 12, (count, size, size, 3))
        sets.append(_dataset(name, images, labels))
    noise = 128 + rng.normal(0, 25, (100, size, size, 3))
    train, held_out, test = sets
    return train, held_out, test, _dataset("outliers", noise, np.arange(100) % CLASSES)


def _dataset(name: str, images: NDArray[np.float64], labels: NDArray[np.int64]) -> ArrayDataset:
    ids = tuple(f"{name}/{row}" for row in range(len(labels)))
    names = tuple(f"pattern {row}" for row in range(CLASSES))
    table = Table(ids=ids, labels=labels.astype(np.int64), class_names=names, groups=ids)
    return ArrayDataset(table, np.clip(np.rint(images), 0, 255).astype(np.uint8))


class ToyModel(Model):
    """A network of one hidden layer with every capability: detectors of the patterns of `toy_data` and random units.

    It takes images of one `size` and has `width` hidden units. It gives them for any name of a layer, unless `layer`
    says which name is theirs.
    """

    name = "toy"
    num_classes = CLASSES
    capabilities = frozenset({"probabilities", "logits", "features", "samples", "input_gradient"})

    def __init__(self, size: int = SIDE, layer: str | None = None, width: int = UNITS) -> None:
        if isinstance(width, bool) or not isinstance(width, int) or width < CLASSES:
            raise InputError(
                f"width must be a whole number of at least {CLASSES}, as the small network has a unit for each of its "
                f"{CLASSES} classes: it cannot be {width!r}"
            )
        rng = np.random.default_rng(2)
        patterns = _patterns(size).reshape(CLASSES, -1)
        area = (size / SIDE) ** 2
        self.layer = layer
        self.inner = np.concatenate([patterns, rng.normal(0, 1, (width - CLASSES, patterns.shape[1]))]) / (20.0 * area)
        self.outer = rng.normal(0, 0.1, (CLASSES, width))
        self.outer[:, :CLASSES] += 2 * np.eye(CLASSES)
        self.offset = rng.normal(0, 0.1, CLASSES)
        self.masks = (rng.random((PASSES, width)) < 0.5) * 2.0

    def fingerprint(self) -> str:
        """A hash of the weights."""
        return digest_array(np.concatenate([self.inner.ravel(), self.outer.ravel(), self.offset]))

    def predict(self, batch: Batch) -> Prediction:
        """Probabilities, logits, and the passes with half of the units dropped."""
        hidden = self._hidden(self._pixels(batch))
        logits = (hidden @ self.outer.T + self.offset).astype(np.float32)
        samples = np.stack([softmax((hidden * mask) @ self.outer.T + self.offset) for mask in self.masks])
        return Prediction(probabilities=softmax(logits), logits=logits, samples=samples)

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """The hidden units, by their name."""
        if self.layer is not None and layer != self.layer:
            raise UnknownName("layer", layer, [self.layer])
        return self._hidden(self._pixels(batch)).astype(np.float32)

    def head(self) -> Head:
        """The last layer."""
        return Head(self.layer or "hidden", self.outer.astype(np.float32), self.offset.astype(np.float32))

    def stepped_logits(
        self, batch: Batch, temperatures: Sequence[float], steps: Sequence[float]
    ) -> NDArray[np.float32]:
        """Logits (T, E, N, K) after steps along the sign of the confidence's gradient."""
        pixels = self._pixels(batch)
        logits = self._hidden(pixels) @ self.outer.T + self.offset
        answers = np.empty((len(temperatures), len(steps), len(batch), CLASSES), np.float32)
        for row, temperature in enumerate(temperatures):
            by_logit = np.eye(CLASSES)[logits.argmax(axis=1)] - softmax(logits / temperature)
            gradient = (by_logit @ self.outer * (pixels @ self.inner.T > 0)) @ self.inner
            for column, step in enumerate(steps):
                answers[row, column] = self._hidden(pixels + step * np.sign(gradient)) @ self.outer.T + self.offset
        return answers

    def _pixels(self, batch: Batch) -> NDArray[np.float64]:
        return np.asarray(batch.images.reshape(len(batch), -1) / 255.0 - 0.5)

    def _hidden(self, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.maximum(pixels @ self.inner.T, 0.0)
