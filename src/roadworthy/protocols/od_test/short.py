"""`rw.od_test`: the short form of a study with one source and this one protocol, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.monitors import Monitor
from roadworthy.protocols.od_test.names import NAME
from roadworthy.protocols.short_form import run_short_form

STUDY = "od-test"
"""The name of the study, and of its folder under runs/."""


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
    settings: dict[str, Any] = {"sets": [*outliers], "limit": limit, "prior": prior, "cost": cost}
    settings |= {"threshold": threshold, "rejected": rejected, "resamples": resamples}
    return run_short_form(
        NAME,
        settings,
        model=model,
        monitors=monitors,
        source=source,
        train=train,
        outliers=outliers,
        out=out or Path("runs") / STUDY,
        study_name=STUDY,
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
        data_section={"mirror": mirror},
        source_section={
            "near": [*near],
            "overlap": {key: dict(value) for key, value in (overlap or {}).items()},
        },
    )
