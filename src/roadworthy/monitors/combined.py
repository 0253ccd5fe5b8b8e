"""Several monitors as one: any, all or most of them reject, or some of the last frames were rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Dataset, Model
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import checked_arrays, checked_reading, checked_scores, require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.networks.base import OwnNetwork
from roadworthy.monitors.opening import MonitorOpening, NamesFiles, open_monitor
from roadworthy.monitors.threshold import Aim

RULES = ("any", "all", "majority")
PART_THRESHOLDS = ("share", "own")
MOST_FRAMES = 10_000
"""Frames that a decision may look back on."""
TIE_BREAK = 1e-6
"""The weight of the mean margin in a score: parts count the same images inside, so that their margins often tie."""
LARGEST = 1e300
"""Margins are kept within this, so that differences of them are finite."""
SMALLEST = float(np.finfo(np.float64).tiny)
"""By how much a score that is below a threshold is at least said to be below it."""


def recent_rejections(
    rejected: NDArray[np.bool_], starts: NDArray[np.bool_], last: int, at_least: int
) -> NDArray[np.bool_]:
    """Where at least `at_least` of the last `last` frames, this one included, were rejected: (N,) from (N,).

    `starts` (N,) is True where a new object begins: the frames before it do not count.

    >>> rejected = np.array([True, False, True, True, True])
    >>> recent_rejections(rejected, np.array([True, False, False, True, False]), last=3, at_least=2)
    array([False, False,  True, False,  True])
    """
    frames = np.arange(len(rejected))
    first_of_object = np.maximum.accumulate(np.where(starts, frames, 0)) if len(frames) else frames
    totals = np.concatenate([[0], np.cumsum(rejected)])
    return np.asarray(totals[frames + 1] - totals[np.maximum(frames + 1 - last, first_of_object)] >= at_least)


def margin_of(scores: Floats, threshold: float, inside: Floats) -> Floats:
    """How far scores (N,) are from a threshold, in shares of in-distribution images: below 0 where they are below it.

    With F the share of the sorted scores `inside` (n,) up to a score, made continuous by straight lines between
    neighbours and continued beyond both ends by lines of slope 1 / (largest - smallest), it is F(score) - F(threshold).

    >>> margin_of(np.array([-1.0, 1.0, 2.0, 4.0]), 1.0, np.array([0.0, 1.0, 2.0, 4.0])).round(2)
    array([-0.5 ,  0.  ,  0.25,  0.5 ])
    """
    knots, counts = np.unique(np.clip(inside, -LARGEST, LARGEST), return_counts=True)
    shares = np.cumsum(counts) / counts.sum()
    spread = (knots[-1] / 2 - knots[0] / 2) * 2 or 1.0

    def share(values: Floats) -> Floats:
        kept = np.clip(values, -LARGEST, LARGEST)
        with np.errstate(over="ignore"):
            beyond = np.minimum(kept - knots[0], 0) / spread + np.maximum(kept - knots[-1], 0) / spread
        return np.asarray(np.clip(_between(kept, knots, shares) + beyond, -LARGEST, LARGEST))

    margins = share(scores) - share(np.array([threshold]))
    return np.where(scores < threshold, np.minimum(margins, -SMALLEST), np.maximum(margins, 0.0))


def _between(values: Floats, knots: Floats, heights: Floats) -> Floats:
    """Straight lines between knots (n,), level beyond both ends; exact where knots nearly touch, as slopes are not."""
    if len(knots) == 1:
        return np.full(len(values), heights[0])
    left = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2)
    along = np.clip((values - knots[left]) / (knots[left + 1] - knots[left]), 0.0, 1.0)
    return np.asarray(heights[left] + along * (heights[left + 1] - heights[left]))


@registered(MONITORS, "combined")
class Combined(NamesFiles):
    """Several monitors as one: rejects where any, all or the majority of its parts reject, also over the last frames.

    of              the parts: names, or mappings such as `{monitor: deep_knn, k: 8}`; in a study also labels of it
    rule            `any`, `all` or `majority` (more than half of the parts) must reject
    last, at_least  reject where at least so many of the `last` frames, this one included, were rejected
    per_object      whether `last` frames are those of the same object
    part_threshold  `share`: each part rejects the share asked for of in-distribution images; `own`: a part with a
                    threshold of its own keeps it. A part that decides itself always does

    The score is the k-th smallest of the parts' margins (see `margin_of`), k = 1 for any, P for all, P // 2 + 1 for the
    majority of P parts; their mean breaks ties. It is below 0, the threshold of its own, exactly where the rule says to
    reject; another threshold on it moves those of all parts together. A representation is the width of each part's
    columns, then these columns. `codes` is filled in: it stands for the code of parts that are not Roadworthy's.
    """

    of: tuple[Any, ...] = field()  # type: ignore[assignment]  # of an instance; of the class, it makes an instance
    rule: str = "any"
    last: int = 1
    at_least: int = 1
    per_object: bool = True
    part_threshold: str = "share"
    codes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.of, Sequence) or isinstance(self.of, str) or not self.of:
            raise InputError(f"monitor {self.name}: of is a list of at least one monitor, not {self.of!r}")
        for setting, allowed in (("rule", RULES), ("part_threshold", PART_THRESHOLDS)):
            if getattr(self, setting) not in allowed:
                raise UnknownName(f"{setting} of monitor {self.name}", str(getattr(self, setting)), allowed)
        require_count(self, "last", most=MOST_FRAMES)
        require_count(self, "at_least")
        if self.at_least > self.last:
            raise InputError(
                f"monitor {self.name}: at_least {self.at_least} of the last {self.last} frames cannot be rejected: "
                "make it smaller, or last larger"
            )
        if self.last == 1 and not self.per_object:
            raise InputError(f"monitor {self.name}: per_object belongs to last: say how many frames it looks back on")
        parts = [open_monitor(entry) for entry in self.of]
        codes = tuple(code_of(type(part)) for part in parts)
        if self.codes and self.codes != codes:
            raise InputError(
                f"monitor {self.name}: the code of its parts has changed since it was built: build it anew"
            )
        object.__setattr__(self, "of", tuple(_plain_entry(part) for part in parts))
        object.__setattr__(self, "codes", codes)

    @classmethod
    def opened(cls, settings: Mapping[str, Any], opening: MonitorOpening) -> dict[str, Any]:
        """The settings with every part opened; a label of the study stands for the monitor that it names."""
        entries = settings.get("of")
        if not isinstance(entries, list | tuple):
            return dict(settings)
        return {**settings, "of": [_plain_entry(_open_part(entry, opening)) for entry in entries]}

    def as_named(self) -> dict[str, Any]:
        """Its settings without hashes, the parts as a study writes them."""
        parts = [part.as_named() if isinstance(part, NamesFiles) else part.parameters() for part in self.parts]
        named = {key: value for key, value in self.parameters().items() if key != "codes"}
        return named | {"of": [{"monitor": p.name, **s} for p, s in zip(self.parts, parts, strict=True)]}

    @cached_property
    def parts(self) -> tuple[Monitor, ...]:
        """The monitors that it is made of."""
        return tuple(MONITORS.get(entry["monitor"]).of(_settings_of(entry)) for entry in self.of)

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """What any part needs."""
        return frozenset[str]().union(*(part.needs for part in self.parts))

    @property
    def classes(self) -> int:  # type: ignore[override]
        """The largest number of classes that a part needs."""
        return max(part.classes for part in self.parts)

    @property
    def learns_from(self) -> tuple[str, ...]:  # type: ignore[override]
        """The data that any part learns from."""
        return tuple(dict.fromkeys(role for part in self.parts for role in part.learns_from))

    @property
    def layer(self) -> str | None:
        """The layer of a part that reads one, where all of those name theirs; else None, for the default layer."""
        layers = [getattr(part, "layer", None) for part in self.parts if "features" in part.needs]
        return layers[0] if layers and None not in layers else None

    @property
    def learns(self) -> bool:
        """Whether any part learns."""
        return any(part.learns for part in self.parts)

    @property
    def own_threshold(self) -> float | None:
        """0: each part at its threshold."""
        return 0.0

    @property
    def decides_itself(self) -> bool:
        """Whether no other threshold than its own makes sense: all parts decide themselves, or one needs an order."""
        return any(part.is_sequential for part in self.parts) or all(part.decides_itself for part in self.parts)

    @property
    def is_sequential(self) -> bool:
        """Whether it looks back on frames, or a part does."""
        return self.last > 1 or any(part.is_sequential for part in self.parts)

    @property
    def looks_back(self) -> int | None:
        """`last` frames, and what the parts look back on from the first of these."""
        by_part = [part.looks_back for part in self.parts]
        numbers = [number for number in by_part if number is not None]
        return self.last + max(numbers) - 1 if len(numbers) == len(by_part) else None

    @property
    def is_per_object(self) -> bool:
        """Whether its own memory, or that of a part, ends with an object."""
        return (self.last > 1 and self.per_object) or any(part.is_per_object for part in self.parts)

    @property
    def tunes_to_share(self) -> bool:
        """Whether the threshold of any part comes from the share to reject."""
        keeps_own = self.part_threshold == "own"
        return any(
            part.tunes_to_share or not (part.decides_itself or (keeps_own and part.own_threshold is not None))
            for part in self.parts
        )

    @property
    def rejecting_parts(self) -> int:
        """How many parts must reject, k."""
        return {"any": 1, "all": len(self.parts), "majority": len(self.parts) // 2 + 1}[self.rule]

    def signals(self, model: Model) -> tuple[str, ...]:
        """The signals that the parts learn from."""
        return tuple(sorted({name for part in self.parts for name in part.signals(model)}))

    def work(self, images: int) -> int:
        """The images that the parts' fits count."""
        return sum(part.work(images) for part in self.parts if part.learns)

    @property
    def asks_model(self) -> bool:
        """Whether any part reads anything of the model."""
        return any(part.asks_model for part in self.parts)

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The networks of the parts, each under the number of its part: `0.autoencoder`."""
        return {
            f"{number}.{role}": network
            for number, part in enumerate(self.parts)
            for role, network in part.networks(model, train, outliers).items()
        }

    def pictures(self, images: NDArray[np.uint8], state: Learned) -> Mapping[str, NDArray[np.uint8]]:
        """The parts' pictures, each with the name of its part."""
        return {
            f"{part.name}: {title}": shown
            for part, own in zip(self.parts, self._states(state), strict=True)
            for title, shown in part.pictures(images, own).items()
        }

    def check(self, model: Model) -> None:
        """Refuse a model that cannot serve a part."""
        for part in self.parts:
            part.check(model)

    def fit(self, training: Training) -> Arrays:
        """What the parts learn, each array under the number of its part: `0.mean`."""
        learned: dict[str, NDArray[Any]] = {}
        for number, part in enumerate(self.parts):
            if part.learns:
                state = checked_arrays(part, part.fit(_training_of(training, f"{number}.")), "fit")
                part.check_savable(state)
                learned |= {f"{number}.{key}": array for key, array in state.items()}
        return learned

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """The parts' notes, each with the name of its part."""
        pairs = zip(self.parts, self._states(state), self._rules(rule), strict=True)
        return tuple(f"{part.name}: {note}" for part, own, its_rule in pairs for note in part.notes(own, its_rule))

    def read(self, signals: Signals, state: Learned) -> NDArray[Any]:
        """The width of each part's columns, then these columns side by side, (N, P + sum of widths)."""
        count, columns = len(signals), []
        for part, own in zip(self.parts, self._states(state), strict=True):
            columns.append(checked_reading(part, part.read(signals, own), count).reshape(count, -1))
        widths = np.broadcast_to([column.shape[1] for column in columns], (count, len(columns)))
        return np.concatenate([widths, *columns], axis=1)

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """What the parts learn of validation data, their thresholds, and their sorted scores of images inside."""
        learned: dict[str, NDArray[Any]] = {}
        outliers: Sequence[Rep | None] = [None] * len(self.parts) if outside is None else self._split(outside)
        rows = zip(self.parts, self._split(inside), outliers, self._states(state), strict=True)
        for number, (part, within, without, own) in enumerate(rows):
            rule = checked_arrays(part, part.tune(within, without, aim, own), "tune")
            scores = checked_scores(part, part.rate(within, rule, own), len(within))
            beyond = None if without is None else checked_scores(part, part.rate(without, rule, own), len(without))
            threshold = part.own_threshold if self.part_threshold == "own" else None
            cut = part.cut(scores, beyond, aim) if threshold is None else threshold
            learned |= {f"{number}.rule.{key}": array for key, array in rule.items()}
            learned |= {f"{number}.threshold": np.array([cut]), f"{number}.inside": np.sort(scores)}
        return learned

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> Floats:
        """The k-th smallest margin of the parts, (N,); images of equal margin are told apart by the mean of all."""
        margins = self.margins(rows, rule, state)
        deciding = np.sort(margins, axis=1)[:, self.rejecting_parts - 1]
        scores = deciding + TIE_BREAK * np.clip(margins, -1, 1).mean(axis=1)
        return np.asarray(np.where(deciding < 0, np.minimum(scores, -SMALLEST), np.maximum(scores, 0.0)))

    def margins(self, rows: Rep, rule: Learned, state: Learned) -> Floats:
        """The margin of every part, (N, P): below 0 where it rejects."""
        if rule is None or "0.threshold" not in rule:
            raise InputError(
                f"monitor {self.name} cannot score without the thresholds of its parts: calibrate it first"
            )
        if not len(rows):
            return np.zeros((0, len(self.parts)))
        columns = []
        pieces = zip(self.parts, self._split(rows), self._rules(rule), self._states(state), strict=True)
        for number, (part, own_rows, own_rule, own) in enumerate(pieces):
            scores = checked_scores(part, part.rate(own_rows, own_rule, own), len(own_rows))
            columns.append(margin_of(scores, float(rule[f"{number}.threshold"][0]), rule[f"{number}.inside"]))
        return np.stack(columns, axis=1)

    def in_order(
        self, rows: Rep, rejected: NDArray[np.bool_], starts: NDArray[np.bool_], rule: Learned, state: Learned
    ) -> NDArray[np.bool_]:
        """Rejections (N,) of the rule over the last frames; where a part looks back itself, of what it says in order.

        A combination with such a part decides itself, so that `rejected` is what its parts say one image at a time.
        """
        if len(rows) and any(part.is_sequential for part in self.parts):
            by_part = self.margins(rows, rule, state) < 0
            pieces = zip(self.parts, self._split(rows), self._rules(rule), self._states(state), strict=True)
            for number, (part, own_rows, own_rule, own) in enumerate(pieces):
                if part.is_sequential:
                    by_part[:, number] = part.in_order(own_rows, by_part[:, number], starts, own_rule, own)
            rejected = by_part.sum(axis=1) >= self.rejecting_parts
        objects = starts if self.per_object else np.zeros(len(rows), np.bool_)
        return recent_rejections(rejected, objects, self.last, self.at_least)

    def _split(self, rows: Rep) -> list[Rep]:
        """The columns of each part, from rows that begin with their widths."""
        count = len(self.parts)
        widths = rows[0, :count].astype(np.int64)
        if rows.shape[1] != count + widths.sum() or (rows[:, :count] != rows[0, :count]).any():
            raise InputError(
                f"monitor {self.name}: these are not representations of its parts: represent the images anew"
            )
        return np.split(rows[:, count:], np.cumsum(widths)[:-1], axis=1)

    def _states(self, state: Learned) -> Iterator[Learned]:
        for number in range(len(self.parts)):
            yield state.cached(f"state of part {number}", partial(_under, f"{number}.", state))

    def _rules(self, rule: Learned) -> Iterator[Learned]:
        for number in range(len(self.parts)):
            yield rule.cached(f"rule of part {number}", partial(_under, f"{number}.rule.", rule))


def _training_of(training: Training, prefix: str) -> Training:
    """The same training data with the networks of one part alone."""
    own = copy(training)
    own.networks = {
        role.removeprefix(prefix): network for role, network in training.networks.items() if role.startswith(prefix)
    }
    return own


def leaf_monitors(monitor: Monitor) -> Iterator[Monitor]:
    """The monitors inside a combination, and inside those; any other monitor alone.

    >>> list(leaf_monitors(Combined(of=("msp", {"monitor": "combined", "of": ("random",)}))))
    [Msp(), Random(seed=0)]
    """
    if isinstance(monitor, Combined):
        for part in monitor.parts:
            yield from leaf_monitors(part)
    else:
        yield monitor


def _under(start: str, arrays: Learned) -> Learned:
    """The arrays whose name begins so, by the rest of their name."""
    return Learned({key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)})


def _plain_entry(part: Monitor) -> dict[str, Any]:
    """A part as a plain mapping from which it can be made anew."""
    if part.name not in MONITORS:
        raise InputError(f"monitor {part.name} is not registered: register its class to make it part of a combination")
    part.check_savable(Learned())
    return {"monitor": part.name, **json.loads(json.dumps(part.parameters()))}


def _settings_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "monitor"}


def _open_part(entry: Any, opening: MonitorOpening) -> Monitor:
    """A part as a study names it: a label of the study, a registered name, or a mapping."""
    if not isinstance(entry, str) or entry not in opening.named:
        return open_monitor(entry, opening)
    others = {label: chosen for label, chosen in opening.named.items() if label != entry}
    within = MonitorOpening(opening.base, opening.trust, others)
    return open_monitor({"monitor": entry, **opening.named[entry]}, within)
