"""Pictures of what monitors learned: reconstructions beside their originals, images drawn from a density."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import ModelError, RoadworthyError, foreign_code, is_the_machine_s
from roadworthy.core.tables import SOURCE
from roadworthy.core.types import Images
from roadworthy.engine.monitor_systems import MonitorFit, MonitorOn
from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.monitors import Monitor
from roadworthy.protocols.od_test.names import OUTLIERS
from roadworthy.protocols.pictures import evenly_spaced, thumbnail, write_picture

IMAGES = 4
"""Images of the test data and of each set that monitors are asked to show something of."""
ACROSS = 8
"""Pictures beside one another where a monitor draws them from nothing."""
EDGE = 2
"""White pixels around each."""
TEST = "test"
Row = dict[str, Any]


@dataclass
class Learner:
    """A fit whose monitor can show what it learned, and the labels of all monitors that learned the same.

    `artifact` is the hash of its network, or of the fit where it has none or several.
    """

    source: str
    artifact: str
    fit: MonitorFit
    labels: list[str]


def save_learned(cases: Sequence[PlannedCase], media: Path) -> list[Row]:
    """Write the pictures of every distinct network of every source; the rows say which file shows what."""
    rows: list[Row] = []
    for learner in learners(cases):
        shown = _shown(cases, learner.source)
        where = {SOURCE: learner.source} if learner.source else {}
        where |= {"artifact": learner.artifact, "monitors": ", ".join(learner.labels)}
        try:
            rows += [where | row | {"reason": ""} for row in _pictures(learner, shown, media)]
        except RoadworthyError as error:
            why = f"no picture: {error}"
            rows.append(where | {"picture": "", "set": "", "media": "", "images": 0, "reason": why})
    return rows


def learners(cases: Sequence[PlannedCase]) -> list[Learner]:
    """What can show something, each once per source: monitors that share a network show the same."""
    known: dict[tuple[str, str], Learner] = {}
    for case in cases:
        if not isinstance(case.system, MonitorOn):
            continue
        fit, label = case.system.fit, case.system.name
        if type(fit.monitor).pictures is Monitor.pictures or not fit.loaded:
            continue
        networks = [network.recipe.hash for network in fit.networks.values()]
        artifact = networks[0] if len(networks) == 1 else fit.recipe.hash
        learner = known.setdefault((case.source, artifact), Learner(case.source, artifact, fit, []))
        if label not in learner.labels:
            learner.labels.append(label)
    return [*known.values()]


def _shown(cases: Sequence[PlannedCase], source: str) -> dict[str, PlannedStimulus]:
    """The test data of a source and its sets outside, by name."""
    sets = {case.labels["set"]: case.showing for case in cases if case.source == source}
    return {key: showing for key, showing in sets.items() if key == TEST or key.startswith(OUTLIERS)}


def _pictures(learner: Learner, shown: Mapping[str, PlannedStimulus], media: Path) -> Iterator[Row]:
    """Write what a monitor shows: once where it draws from nothing, else for each set, below the images themselves."""
    start = media / f"learned-{learner.artifact[:12]}"
    if learner.fit.monitor.draws:
        nothing = _batch(next(iter(shown.values())))[:0]
        for number, (title, drawn) in enumerate(_made(learner, nothing).items()):
            path = start.with_name(f"{start.name}-{number}.png")
            write_picture(path, sheet(drawn))
            yield {"picture": title, "set": "", "media": path.name, "images": len(drawn)}
        return
    for key, showing in shown.items():
        images = _batch(showing)
        for number, (title, made) in enumerate(_made(learner, images).items()):
            if made.shape[0] != len(images):
                raise ModelError(f"{len(made)} pictures of {len(images)} images under {title!r}")
            path = start.with_name(f"{start.name}-{showing.stimulus.key}-{number}.png")
            write_picture(path, np.vstack([sheet(images), sheet(made)]))
            yield {"picture": title, "set": key.removeprefix(OUTLIERS), "media": path.name, "images": len(images)}


def _batch(showing: PlannedStimulus) -> Images:
    """A few images of a set, spread over it."""
    return showing.show(showing.data.batch(evenly_spaced(len(showing.data), IMAGES))).images


def _made(learner: Learner, images: Images) -> dict[str, NDArray[np.uint8]]:
    """What the monitor shows of images, by title; what its code raises is a `RoadworthyError`."""
    fitted = learner.fit.fitted
    with foreign_code(learner.labels[0], is_the_machine_s):
        made = {
            title: np.asarray(pictures) for title, pictures in fitted.monitor.pictures(images, fitted.state).items()
        }
    for title, pictures in made.items():
        if pictures.dtype != np.uint8 or pictures.ndim != 4:
            raise ModelError(f"pictures under {title!r} are {pictures.dtype} {pictures.shape}, not uint8 (n, H, W, C)")
    return {title: pictures for title, pictures in made.items() if len(pictures)}


def sheet(images: Images) -> Images:
    """Images (n, H, W, C) as one picture, `ACROSS` in a row, small ones enlarged without smoothing; the rest white.

    >>> sheet(np.zeros((3, 28, 28, 1), np.uint8)).shape, sheet(np.zeros((9, 28, 28, 3), np.uint8)).shape
    ((100, 300, 3), (200, 800, 3))
    """
    edges = [(EDGE, EDGE), (EDGE, EDGE), (0, 0)]
    squares = [np.pad(thumbnail(image), edges, constant_values=255) for image in images]
    across = min(ACROSS, len(squares))
    squares += [np.full_like(squares[0], 255)] * (-len(squares) % across)
    rows = [np.hstack(squares[start : start + across]) for start in range(0, len(squares), across)]
    return np.vstack(rows)
