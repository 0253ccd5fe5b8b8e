"""The short form of a study with one source and one protocol on monitors, from Python: what its functions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from roadworthy.api import execute, model_spec
from roadworthy.core.errors import InputError
from roadworthy.core.validation import parse_size
from roadworthy.data import open_dataset
from roadworthy.engine.progress import ProgressBar
from roadworthy.models.isolation import FOREIGN
from roadworthy.monitors import Monitor, make_monitor
from roadworthy.monitors.opening import NamesFiles
from roadworthy.opening import Given, model_builder
from roadworthy.preparing import prepare
from roadworthy.study import parse_study

SPLIT = [0.6, 0.2, 0.2]
"""Train, validation and test, where a source comes without training data."""


def run_short_form(
    protocol: str,
    settings: Mapping[str, Any],
    *,
    model: Any,
    monitors: Sequence[str | Monitor],
    source: Any,
    train: Any,
    outliers: Mapping[str, Any],
    out: str | Path,
    study_name: str,
    name: str | None,
    size: Any,
    criteria: str | Path | list[Any] | None,
    seed: int,
    workers: int | None,
    allowed: Mapping[str, Any],
    accept_chance: bool,
    fresh: bool,
    progress: ProgressBar,
    model_settings: Mapping[str, Any],
    data_section: Mapping[str, Any],
    source_section: Mapping[str, Any],
) -> Any:
    """Run a protocol with these settings on one model and source; what is in memory is handed over as it is.

    allowed          settings of all models: device, trust, unpickle;  model_settings: those of this one
    data_section     what else the study says of the data;  source_section: of the source
    """
    base = Path.cwd()  # code of a model may change it
    chosen = labelled([make_monitor(one) if isinstance(one, str) else one for one in monitors])
    wanted = parse_size(size)
    build = model_builder(model, wanted, base=base, **allowed, **{"isolate": FOREIGN, **model_settings})
    opened = build()
    data = open_dataset(source, size=wanted, fallback_size=opened.input_size, base=base, seed=seed, name="data")
    learned = None if train is None else open_dataset(train, size=data.size, base=base, seed=seed, name="train")
    learning = {"split": SPLIT} if train is None else {"train": described(train)}
    own = {
        "data": {"test": described(source), **learning, **data_section},
        "models": {opened.name: model_spec(model, dict(model_settings))},
        "size": None if wanted is None else list(wanted),
        **source_section,
    }
    study = parse_study(
        {
            "name": study_name,
            "seed": seed,
            **({"sources": {name: own}} if name is not None else own),
            "outliers": {key: described(value) for key, value in outliers.items()},
            "monitors": {label: {"monitor": one.name, **one.parameters()} for label, one in chosen.items()},
            "protocols": {protocol: settings},
            "criteria": str(criteria) if isinstance(criteria, Path) else criteria,
        },
        protocol,
    )
    given = Given({opened.name: opened}, {opened.name: build}, data, learned, outliers=outliers, monitors=chosen)
    prepared = prepare(study, base=base, given=given, accept_chance=accept_chance, progress=progress, **allowed)
    return execute(prepared, base / out, workers=workers, fresh=fresh, progress=progress)


def described(spec: Any) -> Any:
    """A data set as a study names it; one in memory by its type."""
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
