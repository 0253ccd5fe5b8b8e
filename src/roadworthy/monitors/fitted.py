"""A monitor after its fit, and after its calibration: two values that are never changed, saved without pickle.

FittedMonitor      what was learned; `represent` is the expensive part, (N, D), worth storing per data set
CalibratedMonitor  with a threshold from held-out images (cheap: once per pair of validation sets)

`score` is higher the more in-distribution an image is, for every monitor. In-distribution is the positive class.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import code_of
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest, digest_array
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.core.threads import one_thread
from roadworthy.core.types import Batch
from roadworthy.models.signals import PART, Signals
from roadworthy.monitors.checks import checked_arrays, checked_reading, checked_rows, checked_scores
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.saving import commit_monitor, read_monitor, write_monitor
from roadworthy.monitors.threshold import Aim, RejectedShare, TiesWarning

if TYPE_CHECKING:
    from roadworthy.monitors.base import Monitor


@dataclass(frozen=True, eq=False, repr=False)
class FittedMonitor:
    """A monitor with what it has learned. Nothing in it changes: it can be calibrated in several ways at once.

    monitor     the settings;  state: what `fit` learned
    built_from  fingerprints of the model (empty where it asks none) and, where it learned anything, of the data
    """

    monitor: Monitor
    state: Learned
    built_from: tuple[str, ...]

    def __repr__(self) -> str:
        return f"fitted {self.monitor!r}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of what was learned."""
        return self.monitor.notes(self.state, Learned())

    def built_on(self, model: Model) -> bool:
        """Whether it was built on this model, or asks none, or does not say."""
        return not self.built_from or self.built_from[0] in ("", model.fingerprint())

    def fingerprint(self) -> str:
        """A hash of all that decides a representation: name, settings, code, the model and data it was built from."""
        monitor, code = self.monitor, code_of(type(self.monitor))
        known = {"monitor": monitor.name, "parameters": monitor.parameters(), "built_from": self.built_from}
        return digest(known | ({"code": code} if code else {}))

    def represent(self, model: Model, batch: Batch, size: int = BATCH) -> Rep:
        """What the monitor keeps of each image, (N, D) float32; the model is asked in batches of exactly `size`."""
        size = model.fixed_batch or size
        with one_thread():
            parts = [
                self.represent_signals(Signals(model, batch.take(slice(start, start + size)), size))
                for start in range(0, len(batch), size)
            ]
        return np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)

    def represent_signals(self, signals: Signals) -> Rep:
        """The same from signals that others read too."""
        self.monitor.check(signals.model)
        with one_thread():
            rows = np.concatenate([self._rows(piece) for piece in signals.pieces])[: len(signals)]
        rows = np.ascontiguousarray(rows.reshape(len(signals), -1), np.float32)
        return checked_rows(self.monitor, rows, f"of {len(signals)} images")

    def _rows(self, signals: Signals) -> NDArray[Any]:
        shown = signals if self.monitor.asks_model else signals.without_model()
        return checked_reading(self.monitor, self.monitor.read(shown, self.state), len(signals))

    def scores(self, rows: Rep, rule: Learned) -> Floats:
        """Scores (N,) of representations (N, D), by what `tune` learned; an `InputError` where one is NaN."""
        return checked_scores(self.monitor, self.monitor.rate(rows, rule, self.state), len(rows))

    def calibrate(
        self,
        rep_id: Rep,
        rep_ood: Rep | None = None,
        *,
        rejected: float = 0.05,
        prior: float = 0.5,
        cost: float = 1.0,
        threshold: str = "exact",
    ) -> CalibratedMonitor:
        """Find the threshold on held-out representations (n, D): of in-distribution images alone, or against outliers.

        Alone, it rejects the share `rejected` of them, or less where images of equal score make that impossible: then a
        `TiesWarning` says so, and `rejected` of the result holds both shares. A monitor that decides itself keeps its
        own threshold, and the share that this rejects counts as asked for. With outliers it is the one of lowest
        expected cost: see `Aim`.
        """
        aim, monitor = Aim(rejected, prior, cost, threshold), self.monitor
        inside = checked_rows(monitor, rep_id, "of in-distribution images")
        outside = None if rep_ood is None else checked_rows(monitor, rep_ood, "of outliers")
        for side, rows in (("in-distribution images", inside), ("outliers", outside)):
            if rows is not None and not len(rows):
                raise InputError(f"monitor {monitor.name} cannot be calibrated without {side}: the set is empty")
        if outside is not None and outside.shape[1] != inside.shape[1]:
            raise InputError(
                f"monitor {monitor.name}: {inside.shape[1]} columns inside but {outside.shape[1]} of the outliers"
            )
        rule = checked_arrays(monitor, monitor.tune(inside, outside, aim, self.state), "tune")
        scores = self.scores(inside, rule)
        cut = monitor.cut(scores, None if outside is None else self.scores(outside, rule), aim)
        asked = float((scores < cut).mean()) if monitor.decides_itself else rejected
        share = RejectedShare.of(scores, cut, asked) if outside is None else None
        if share is not None and share.tied:
            warnings.warn(f"monitor {monitor.name} {share.sentence()}", TiesWarning, stacklevel=2)
        hashes = tuple(digest_array(rows) for rows in (inside, outside) if rows is not None)
        return CalibratedMonitor(self, aim, inside.shape[1], rule, cut, share, hashes)

    def save(self, folder: str | Path) -> Path:
        """Write settings and state to a folder: JSON, plain arrays, and a manifest that has the hashes of both."""
        return commit_monitor(self.write_parts(folder), self.built_from)

    def write_parts(self, folder: str | Path) -> Path:
        """Write the same without the manifest, to a folder that the caller commits: that of an artifact."""
        return write_monitor(folder, *self._parts())

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The record and the arrays to be saved; an `InputError` where the monitor cannot be."""
        self.monitor.check_savable(self.state)
        record = {
            "monitor": self.monitor.name,
            "parameters": self.monitor.parameters(),
            "built_from": self.built_from,
            "notes": self.notes,
            "code": code_of(type(self.monitor)),
        }
        return record, {f"state.{key}": array for key, array in self.state.items()}

    @classmethod
    def load(
        cls, folder: str | Path, model: Model | None = None, *, kind: type[Monitor] | None = None
    ) -> FittedMonitor:
        """What `save` wrote, a threshold left aside; where a model is given, it must be the one it was built on.

        `kind` is the class of the monitor, where it is not registered.
        """
        return _loaded(folder, model, kind)[0]


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedMonitor:
    """A fitted monitor with a threshold: a small value that says which images to reject.

    aim, rule, threshold  what the calibration aimed at, what `tune` learned, and the score below which it rejects
    columns        of the representations it was calibrated on;  calibrated_on: hashes of these
    rejected       the share of images inside that was asked for and the one reached; None where outliers were given
    """

    fitted: FittedMonitor
    aim: Aim
    columns: int | None
    rule: Learned
    threshold: float
    rejected: RejectedShare | None
    calibrated_on: tuple[str, ...]

    def __repr__(self) -> str:
        share = f" {self.rejected.sentence()}" if self.rejected else ""
        return f"{self.fitted.monitor!r} with threshold {self.threshold:g}{share}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of what was learned."""
        return self.fitted.monitor.notes(self.fitted.state, self.rule)

    def fingerprint(self) -> str:
        """A hash of all that decides the threshold: the fitted monitor, the representations and the aim."""
        return digest({"fitted": self.fitted.fingerprint(), "aim": asdict(self.aim), "rows": self.calibrated_on})

    def score(self, rep: Rep) -> Floats:
        """Scores (N,) of representations (N, D), higher = more in-distribution."""
        rows = checked_rows(self.fitted.monitor, rep, "to score")
        if len(rows) and self.columns is not None and rows.shape[1] != self.columns:
            raise InputError(
                f"monitor {self.fitted.monitor.name} was calibrated on representations of {self.columns} columns, not "
                f"{rows.shape[1]}: represent the images with this monitor"
            )
        return self.fitted.scores(rows, self.rule)

    def reject(self, rep: Rep) -> NDArray[np.bool_]:
        """(N,): True where the score lies below the threshold."""
        return self.score(rep) < self.threshold

    def decide(self, model: Model, batch: Batch) -> NDArray[np.bool_]:
        """(N,): True where an image is to be rejected; for one image or many, at deployment.

        Nothing is filled up to a batch where one holds all images: what is asked of the model is this image alone. So
        the last bits of a score can differ from those of `represent`.
        """
        return self.reject(self.fitted.represent(model, batch, max(1, min(len(batch), BATCH))))

    def save(self, folder: str | Path) -> Path:
        """Write settings, state and threshold to a folder, as `FittedMonitor.save` does."""
        record, arrays = self.fitted._parts()
        record |= {
            "aim": asdict(self.aim),
            "columns": self.columns,
            "rejected": None if self.rejected is None else asdict(self.rejected),
            "calibrated_on": self.calibrated_on,
        }
        arrays |= {f"rule.{key}": array for key, array in self.rule.items()}
        arrays |= {"threshold": np.asarray(self.threshold, np.float64)}
        return commit_monitor(write_monitor(folder, record, arrays), self.fitted.built_from)

    @classmethod
    def load(
        cls, folder: str | Path, model: Model | None = None, *, kind: type[Monitor] | None = None
    ) -> CalibratedMonitor:
        """What `save` wrote; see `FittedMonitor.load`."""
        fitted, record, arrays = _loaded(folder, model, kind)
        if "threshold" not in arrays or record["aim"] is None:
            raise InputError(f"{folder} holds a monitor without a threshold: load it as a FittedMonitor, and calibrate")
        if arrays["threshold"].shape != () or arrays["threshold"].dtype.kind not in "fiu":
            raise InputError(f"{folder} is damaged, its threshold is no number: save the monitor again")
        rule, threshold = _under("rule.", arrays), float(arrays["threshold"])
        calibrated_on = tuple(record["calibrated_on"])
        return cls(fitted, record["aim"], record["columns"], rule, threshold, record["rejected"], calibrated_on)


def load_monitor(folder: str | Path, model: Model | None = None) -> CalibratedMonitor:
    """A saved monitor of any registered kind, ready to decide."""
    return CalibratedMonitor.load(folder, model)


def _loaded(
    folder: str | Path, model: Model | None, kind: type[Monitor] | None
) -> tuple[FittedMonitor, dict[str, Any], dict[str, NDArray[Any]]]:
    record, arrays = read_monitor(folder)
    name = record["monitor"]
    kind = kind or MONITORS.get(name)
    if name != kind.name:
        raise InputError(f"{folder} holds a monitor {name}, not {kind.name}")
    if "code" in record and record["code"] != code_of(kind):
        raise InputError(f"{folder} holds a monitor {name}; its code has changed since it was saved: build it anew")
    fitted = FittedMonitor(kind.of(record["parameters"]), _under("state.", arrays), tuple(record["built_from"]))
    if model is not None and not fitted.built_on(model):
        raise InputError(f"{folder} was built on another model than {model.name}: build the monitor anew")
    return fitted, record, arrays


def _under(prefix: str, arrays: Arrays) -> Learned:
    return Learned({key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)})


def represent_data(fitted: FittedMonitor, model: Model, data: Dataset, size: int = BATCH) -> Rep:
    """The representations (N, D) of a whole data set."""
    if not len(data):
        raise InputError(f"monitor {fitted.monitor.name} cannot represent {data.name}: it holds no images")
    parts = (data.batch(slice(start, min(start + PART, len(data)))) for start in range(0, len(data), PART))
    return np.concatenate([fitted.represent(model, batch, size) for batch in parts])
