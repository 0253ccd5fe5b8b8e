"""`rw.od_test`: the short form of a study with one source and one protocol, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from roadworthy.api import execute, model_spec
from roadworthy.core.errors import InputError
from roadworthy.core.validation import parse_size
from roadworthy.data import open_dataset
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.monitors import Monitor, NamesFiles, make_monitor
from roadworthy.opening import Given, model_builder
from roadworthy.preparing import prepare
from roadworthy.protocols.od_test.names import NAME
from roadworthy.study import parse_study

SPLIT = [0.6, 0.2, 0.2]
"""Train, validation and test, where a source comes without training data."""


def od_test(
    model: Any,
    *,
    monitors: Sequence[str | Monitor],
    source: Any,
    outliers: Mapping[str, Any],
    train: Any = None,
    out: str | Path | None = None,
    name: str | None = None,
    near: Sequence[str] = (),
    overlap: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    size: Any = None,
    limit: int | None = None,
    mirror: bool = False,
    prior: float = 0.5,
    cost: float = 1.0,
    threshold: str = "exact",
    rejected: float = 0.05,
    resamples: int = 0,
    criteria: str | Path | list[Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
    **model_settings: Any,
) -> Any:
    """Evaluate monitors of one model by OD-test: calibrated against each set of outliers, tested on every other.

    source     held-out images, split by group into validation and test; into three parts where `train` is not given
    train      what the monitors learn from
    outliers   data sets by name (paths, arrays, data sets), or makers of noise such as "uniform_noise"
    name       of the source, for a table with a column `source`; the model's name tells otherwise
    near, overlap   see `SourceSection`;  the others: see `Settings`
    criteria   what must hold for triples: `where` may name model (or source), valid_set, test_set, ood and monitor

    The run lands in `out` (default: runs/od-test). With one more monitor the same call computes only that one.
    """
    base = Path.cwd()  # code of a model may change it
    chosen = labelled([make_monitor(one) if isinstance(one, str) else one for one in monitors])
    wanted = parse_size(size)
    allowed: dict[str, Any] = {"trust": trust, "unpickle": unpickle, "device": device}
    build = model_builder(model, wanted, base=base, **allowed, **model_settings)
    opened = build()
    data = open_dataset(source, size=wanted, fallback_size=opened.input_size, base=base, seed=seed, name="data")
    learned = None if train is None else open_dataset(train, size=data.size, base=base, seed=seed, name="train")
    settings: dict[str, Any] = {"sets": [*outliers], "limit": limit, "prior": prior, "cost": cost}
    settings |= {"threshold": threshold, "rejected": rejected, "resamples": resamples}
    learning = {"split": SPLIT} if train is None else {"train": _described(train)}
    own = {
        "data": {"test": _described(source), **learning, "mirror": mirror},
        "models": {opened.name: model_spec(model, model_settings)},
        "size": None if wanted is None else list(wanted),
        "near": [*near],
        "overlap": {key: dict(value) for key, value in (overlap or {}).items()},
    }
    study = parse_study(
        {
            "name": "od-test",
            "seed": seed,
            **({"sources": {name: own}} if name is not None else own),
            "outliers": {key: _described(value) for key, value in outliers.items()},
            "monitors": {label: {"monitor": m.name, **m.parameters()} for label, m in chosen.items()},
            "protocols": {NAME: settings},
            "criteria": str(criteria) if isinstance(criteria, Path) else criteria,
        },
        NAME,
    )
    given = Given({opened.name: opened}, {opened.name: build}, data, learned, outliers, chosen)
    prepared = prepare(study, base=base, given=given, accept_chance=accept_chance, progress=progress, **allowed)
    return execute(prepared, base / (out or Path("runs") / "od-test"), workers=workers, fresh=fresh, progress=progress)


def _described(spec: Any) -> Any:
    return spec if isinstance(spec, dict) else str(spec) if isinstance(spec, str | Path) else f"<{type(spec).__name__}>"


def labelled(monitors: Sequence[Monitor]) -> dict[str, Monitor]:
    """Monitors by name and the settings that are not the default: `knn_svm k=2`; two equal ones are an error."""
    by_label: dict[str, Monitor] = {}
    for monitor in monitors:
        if not isinstance(monitor, Monitor):
            raise InputError(f"a monitor is a name or a Monitor, not {type(monitor).__name__}")
        defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(monitor)}
        named = monitor.as_named() if isinstance(monitor, NamesFiles) else monitor.parameters()
        changed = [f"{key}={value}" for key, value in named.items() if value != defaults[key]]
        label = " ".join([str(monitor.name), *changed])
        if label in by_label:
            raise InputError(f"monitor {label} is named twice: leave one out")
        by_label[label] = monitor
    return by_label
