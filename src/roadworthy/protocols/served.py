"""What protocols with monitors ask before a run: whether a model can serve each of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.engine.plan import Bench
from roadworthy.models.head import find_head, network_of
from roadworthy.monitors import Monitor


def source_words(bench: Bench) -> str:
    """The source, for messages that speak of it."""
    return f"source {bench.source}" if bench.source else "the source"


def check_served(bench: Bench, model: Model, monitors: Mapping[str, Monitor]) -> None:
    """Refuse monitors that a model cannot serve, or that the training data has too few classes for."""
    is_known = all(part.loaded for part in network_of(model).requires())
    classes = 0 if bench.train is None else len(np.unique(bench.train.labels))
    for label, monitor in monitors.items():
        try:
            monitor.check(model)
            if is_known and "features" in monitor.needs and getattr(monitor, "layer", None) is None:
                find_head(model)
        except InputError as error:
            raise InputError(f"{source_words(bench)}: {error}; or leave the monitor out (leave_out)") from None
        if monitor.learns and classes < monitor.classes:
            raise InputError(
                f"{source_words(bench)}: monitor {label} needs images of {monitor.classes} classes to learn from: "
                f"there are {classes}"
            )
