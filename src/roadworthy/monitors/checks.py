"""What a monitor's settings must be, and what its methods must return: anything else is an `InputError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.monitors.learned import Floats, Learned, Rep, read_only

if TYPE_CHECKING:
    from roadworthy.monitors.base import Monitor


def require_count(monitor: Monitor, setting: str, least: int = 1, most: int | None = None) -> None:
    """Refuse a setting that is not a whole number of at least `least`, and at most `most` where there is one."""
    value = getattr(monitor, setting)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"monitor {monitor.name}: {setting} is a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise InputError(f"monitor {monitor.name}: {setting} is at most {most:,}, not {value:,}")


def require_layer(monitor: Monitor, layer: Any) -> None:
    """Refuse what is not the name of a layer; None stands for the default one."""
    if layer is not None and not (isinstance(layer, str) and layer):
        raise InputError(f"monitor {monitor.name}: layer is the name of a layer of the model, or None, not {layer!r}")


def checked_arrays(monitor: Monitor, arrays: Any, method: str) -> Learned:
    """What `fit` or `tune` (the method) returned; an `InputError` where it is other than arrays of numbers by name."""
    if not isinstance(arrays, Mapping) or not all(isinstance(key, str) for key in arrays):
        raise InputError(f"monitor {monitor.name}: {method} must return arrays by name, not {type(arrays).__name__}")
    numbers = {key: _numbers(array, f"monitor {monitor.name}: {key} of {method}") for key, array in arrays.items()}
    return arrays if isinstance(arrays, Learned) else Learned(numbers)


def checked_reading(monitor: Monitor, rows: Any, images: int) -> NDArray[Any]:
    """What `read` returned of so many images, (N,) or (N, D); an `InputError` where it is not one row per image."""
    reading = _numbers(rows, f"monitor {monitor.name}: what read returns")
    if reading.ndim not in (1, 2) or len(reading) != images or not reading.size:
        raise InputError(
            f"monitor {monitor.name}: read must return one row per image, (N,) or (N, D) with N = {images}, "
            f"not {reading.shape}"
        )
    return reading


def checked_rows(monitor: Monitor, rep: Rep, which: str) -> Rep:
    """Representations (N, D) as rows that cannot be written to; an `InputError` where they are not finite rows."""
    rows = _numbers(rep, f"monitor {monitor.name}: representations {which}").astype(np.float32, copy=False)
    if rows.ndim != 2:
        raise InputError(f"monitor {monitor.name}: representations {which} must be (N, D), not {rows.shape}")
    bad = int((~np.isfinite(rows)).any(axis=1).sum())
    if bad:
        raise InputError(
            f"monitor {monitor.name}: representations {which} hold NaN or infinity in {bad} of {len(rows)}"
        )
    return read_only(rows)


def checked_scores(monitor: Monitor, rated: Any, images: int) -> Floats:
    """What `rate` returned of so many images, (N,); an `InputError` where it is not one score per image."""
    scores = _numbers(rated, f"monitor {monitor.name}: what rate returns").astype(np.float64, copy=False)
    if scores.shape != (images,):
        raise InputError(
            f"monitor {monitor.name}: rate must return one score per image, ({images},), not {scores.shape}"
        )
    undefined = int(np.isnan(scores).sum())
    if undefined:
        raise InputError(f"monitor {monitor.name}: rate returned NaN for {undefined} of {images} images")
    return scores


def _numbers(value: Any, what: str) -> NDArray[Any]:
    """An array of numbers; what is none is an `InputError`."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"{what} must be an array of numbers, not {kind}")
    return array
