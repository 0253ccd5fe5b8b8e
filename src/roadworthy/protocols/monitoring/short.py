"""`rw.monitoring`: the short form of a study with one source and this one protocol, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roadworthy.api import execute, model_spec
from roadworthy.core.errors import InputError
from roadworthy.core.validation import parse_size
from roadworthy.data import open_dataset
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.monitors import Monitor, make_monitor
from roadworthy.opening import Given, model_builder
from roadworthy.preparing import prepare
from roadworthy.protocols.monitoring.names import NAME
from roadworthy.protocols.od_test.short import SPLIT, labelled
from roadworthy.study import parse_study


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
    base = Path.cwd()  # code of a model may change it
    chosen = labelled([make_monitor(one) if isinstance(one, str) else one for one in monitors])
    wanted = parse_size(size)
    allowed: dict[str, Any] = {"trust": trust, "unpickle": unpickle, "device": device}
    build = model_builder(model, wanted, base=base, **allowed, **model_settings)
    opened = build()
    data = open_dataset(source, size=wanted, fallback_size=opened.input_size, base=base, seed=seed, name="data")
    learned = None if train is None else open_dataset(train, size=data.size, base=base, seed=seed, name="train")
    learning: dict[str, Any] = {"split": SPLIT} if train is None else {"train": described(train)}
    if validation is not None:
        if not isinstance(validation, str | Path | dict):
            raise InputError("validation data must be named as in a study, by its path or as a mapping, not in memory")
        learning |= {"validation": described(validation)}
    own = {
        "data": {"test": described(source), **learning},
        "models": {opened.name: model_spec(model, model_settings)},
        "size": None if wanted is None else list(wanted),
        "near": [*near],
    }
    protocol = {**(settings or {}), **({} if benchmarks is None else {"benchmarks": dict(benchmarks)})}
    study = parse_study(
        {
            "name": NAME,
            "seed": seed,
            **({"sources": {name: own}} if name is not None else own),
            "outliers": {key: described(value) for key, value in (outliers or {}).items()},
            "monitors": {label: {"monitor": one.name, **one.parameters()} for label, one in chosen.items()},
            "protocols": {NAME: protocol},
            "criteria": str(criteria) if isinstance(criteria, Path) else criteria,
        },
        NAME,
    )
    given = Given({opened.name: opened}, {opened.name: build}, data, learned, dict(outliers or {}), chosen)
    prepared = prepare(study, base=base, given=given, accept_chance=accept_chance, progress=progress, **allowed)
    return execute(prepared, base / (out or Path("runs") / NAME), workers=workers, fresh=fresh, progress=progress)


def described(spec: Any) -> Any:
    """A data set as a study names it; one in memory by its type."""
    return spec if isinstance(spec, dict) else str(spec) if isinstance(spec, str | Path) else f"<{type(spec).__name__}>"
