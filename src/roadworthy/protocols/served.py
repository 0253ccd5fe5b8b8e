"""What protocols with monitors ask before a run: whether monitors are distinct, and whether a model can serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset, Model, leaves
from roadworthy.engine.plan import Bench
from roadworthy.models.head import find_head, network_of
from roadworthy.monitors import MONITORS, Monitor
from roadworthy.monitors.kinds import remember_kind


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


def distinct_monitors(
    protocol: str, monitors: Mapping[str, Monitor], check: Callable[[str, Monitor], None]
) -> dict[str, Monitor]:
    """Monitors by label; none at all, two equal ones, or two classes of one name are an error.

    `check` refuses a label that the tables of the protocol cannot have.
    """
    if not monitors:
        raise InputError(f"{protocol} needs a monitor: name at least one of {', '.join(sorted(MONITORS))}")
    by_label: dict[str, Monitor] = {}
    for label, monitor in monitors.items():
        check(label, monitor)
        remember_kind(type(monitor))
        same = [other for other, known in by_label.items() if known == monitor]
        if same:
            raise InputError(f"monitor {label} is named twice, as {same[0]} too: leave one out")
        by_label[label] = monitor
    return by_label


def class_labels(data: Dataset, classes: Iterable[str]) -> frozenset[int]:
    """The labels of some classes of a data set; one that it does not have is an error."""
    for name in classes:
        if name not in data.class_names:
            raise UnknownName(f"class of {data.name}", name, data.class_names)
    return frozenset(data.class_names.index(name) for name in classes)


def architecture_of(model: Model) -> str:
    """What a model is: the kind of a reference network, else its name."""
    inner = leaves(model)[0]
    return str(getattr(inner, "architecture", inner.name))
