"""`rw.monitoring`: the short form of a study with one source and this one protocol, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.monitors import Monitor
from roadworthy.protocols.monitoring.names import NAME
from roadworthy.protocols.short_form import described, run_short_form


def monitoring(
    model: Any,
    *,
    monitors: Sequence[str | Monitor],
    source: Any,
    benchmarks: Mapping[str, Mapping[str, Any]] | None = None,
    outliers: Mapping[str, Any] | None = None,
    train: Any = None,
    validation: Any = None,
    out: str | Path | None = None,
    name: str | None = None,
    near: Sequence[str] = (),
    size: Any = None,
    criteria: str | Path | list[Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
    settings: Mapping[str, Any] | None = None,
    **model_settings: Any,
) -> Any:
    """Benchmark monitors of one model: what each is worth in streams of ID and OOD images.

    source      held-out images; split by group into training, validation and test where `train` is not given
    train       what the monitors learn from;  validation: what thresholds come from (default: half of the objects)
    benchmarks  by name, each as in a study: {"fog": {"kind": "distributional_shift", "shift": "fog", "level": 3}}
    outliers    sets outside by name (paths, arrays, data sets), or makers such as "uniform_noise"
    settings    the others of the protocol: ratio, order, threshold, limit, ... (see `Settings`)
    name, near  of the source;  criteria: `where` may name model, benchmark, ood_kind, monitor, view and part

    The run lands in `out` (default: runs/monitoring). The same call with another ratio, order or threshold asks no
    model, and one with a further monitor only that one.
    """
    if validation is not None and not isinstance(validation, str | Path | dict):
        raise InputError("validation data must be named as in a study, by its path or as a mapping, not in memory")
    return run_short_form(
        NAME,
        {**(settings or {}), **({} if benchmarks is None else {"benchmarks": dict(benchmarks)})},
        model=model,
        monitors=monitors,
        source=source,
        train=train,
        outliers=dict(outliers or {}),
        out=out or Path("runs") / NAME,
        study_name=NAME,
        name=name,
        size=size,
        criteria=criteria,
        seed=seed,
        workers=workers,
        allowed={"trust": trust, "unpickle": unpickle, "device": device},
        accept_chance=accept_chance,
        fresh=fresh,
        progress=progress,
        model_settings=model_settings,
        data_section={} if validation is None else {"validation": described(validation)},
        source_section={"near": [*near]},
    )
