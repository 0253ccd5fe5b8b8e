"""The table of networks: every network of a source, the models' own and those that monitors trained for themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from roadworthy.core.competence import competence_of
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.tables import SOURCE
from roadworthy.engine.artifacts import read_artifact
from roadworthy.models.networks import count_weights
from roadworthy.models.training import WEIGHTS
from roadworthy.monitors.networks.base import PREFIX, objective_of
from roadworthy.protocols.od_test.names import ALL
from roadworthy.protocols.od_test.subjects import Subject

GIVEN = "given: this run did not train it"
NO_FIGURE = "no figure is known of it"
Row = dict[str, Any]


def network_rows(subjects: Sequence[Subject]) -> list[Row]:
    """A row per network of a source; one that serves the monitors of several models stands for `all` of them."""
    rows: list[Row] = []
    for source in dict.fromkeys(subject.source for subject in subjects):
        own = [subject for subject in subjects if subject.source == source]
        where = {SOURCE: source} if source else {}
        uses: dict[str, list[Use]] = {}
        for subject in own:
            rows += [where | row for row in _of_model(subject)]
            for use in _uses(subject):
                uses.setdefault(use.artifact, []).append(use)
        rows += [where | _of_monitors(artifact, used) for artifact, used in uses.items()]
    return rows


@dataclass(frozen=True)
class Use:
    """A network in a fit: the monitor by its label, the role of the network, and the D_v that the fit is for."""

    artifact: str
    subject: Subject
    label: str
    role: str
    fitted_on: str


def building_cost(subject: Subject, fits: Sequence[str], built: pd.DataFrame) -> dict[str, float]:
    """What it cost to build some fits of a monitor and the networks they are made of, each once.

    `built` are the rows of `timing_artifacts`. Seconds are the sum; NaN where one of them was not timed. The peak is
    the highest of the processes that built them.
    """
    networks = [name for fit in fits for name in networks_of(subject, fit).values()]
    rows = built.set_index("artifact").reindex([*dict.fromkeys([*fits, *networks])])
    return {
        "build_seconds": float(rows["seconds"].sum(skipna=False)),
        "peak_bytes": float(rows["peak_bytes"].max(skipna=False)),
    }


def training_costs(rows: Sequence[Row], built: pd.DataFrame) -> list[Row]:
    """What each network of these rows cost to train, given the rows of `timing_artifacts`; given ones are left out."""
    known = built.set_index("artifact").reindex([row["artifact"] for row in rows if row["artifact"]])
    where = [{key: row[key] for key in (SOURCE, "model", "artifact") if key in row} for row in rows if row["artifact"]]
    costs = known[["seconds", "peak_bytes"]].to_dict("records")
    return [row | {str(key): value for key, value in cost.items()} for row, cost in zip(where, costs, strict=True)]


def networks_of(subject: Subject, artifact: str) -> Mapping[str, str]:
    """The hashes of the networks that a fit is made of, by role."""
    known: Mapping[str, str] = read_artifact(subject.cases[0].artifact(artifact))["competence"].get("networks", {})
    return known


def _of_model(subject: Subject) -> Iterator[Row]:
    """The networks that a model of its own consists of, or that it was given."""
    where = {"model": subject.model, "monitors": "", "role": "model", "fitted_on": ""}
    architecture = subject.context.architectures[subject.model]
    hashes = subject.context.networks.get(subject.model, ())
    trained = [{"artifact": artifact, **_described(subject, artifact)} for artifact in hashes]
    trained = [row for row in trained if row["figure"] or row["reason"] != NO_FIGURE]
    for row in trained or [{"artifact": "", "loss": "", "figure": "", "undertrained": False, "reason": GIVEN}]:
        yield where | {"architecture": architecture} | row


def _of_monitors(artifact: str, uses: Sequence[Use]) -> Row:
    """A network that monitors trained, and who uses it."""
    models = [*dict.fromkeys(use.subject.model for use in uses)]
    named = {"monitors": "label", "role": "role", "fitted_on": "fitted_on"}
    texts = {column: ", ".join(dict.fromkeys(getattr(use, name) for use in uses)) for column, name in named.items()}
    model = models[0] if len(models) == 1 else ALL
    return {"model": model, "artifact": artifact, **texts, **_described(uses[0].subject, artifact)}


def _uses(subject: Subject) -> Iterator[Use]:
    """The networks of every fit; one that failed has none."""
    for label, fits in subject.fits.items():
        for fitted_on, cases in fits.items():
            fit = next(iter(cases.values())).labels["artifact"]
            try:
                known = networks_of(subject, fit)
            except RoadworthyError:
                continue
            for role, artifact in known.items():
                yield Use(artifact, subject, label, role, fitted_on)


def _described(subject: Subject, artifact: str) -> Row:
    """What is stored of a network: what trained it, how good it is, and how large."""
    try:
        home = subject.cases[0].artifact(artifact)
        stored = read_artifact(home)
    except RoadworthyError as error:
        return {"loss": "", "figure": "", "undertrained": False, "reason": f"failed: {error}"}
    figures, parameters = stored["competence"], stored["parameters"]
    competence = competence_of(figures)
    row = {
        "architecture": parameters.get("architecture", stored["builder"].removeprefix(PREFIX)),
        "loss": objective_of(stored["builder"], parameters),
        **{name: figures.get(name) for name in ("epochs", "best_epoch")},
        **_size(home, figures),
    }
    if competence is None:
        return row | {"figure": "", "undertrained": False, "reason": NO_FIGURE}
    known = {"figure": competence.figure, "value": competence.value, "floor": competence.floor}
    return row | known | {"undertrained": competence.undertrained, "reason": str(figures.get("stopped", ""))}


def _size(home: Path, figures: Mapping[str, Any]) -> Row:
    """The number of weights, and the size of their file in megabytes; nothing where there is no file."""
    path = home / WEIGHTS
    if not path.is_file():
        return {}
    return {"weights": figures.get("weights") or count_weights(path), "megabytes": path.stat().st_size / 1e6}
