"""What the galleries of an OD-test show, from its stored tables and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.grouping import grouped
from roadworthy.core.tables import TableSpec
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.network_facts import Networks, OwnedNetwork
from roadworthy.report.reading import Picture, Row, has_table, media_path, read_rows


@dataclass(frozen=True)
class SurestImage:
    """One of the images of a set that a model is surest of; `others` are the answers of the other models to it."""

    id: str
    picture: Picture
    answer: str
    probability: float
    others: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class SurestSet:
    """A set outside: a line per rank, with an image per model of the source, or None where a model has no more."""

    name: str
    lines: tuple[tuple[SurestImage | None, ...], ...]


@dataclass(frozen=True)
class SurestSource:
    """What the models of a source are surest of, set by set; the source of a study of one has no name.

    `labels` are the names that other tables and facts have for its models.
    """

    name: str
    models: tuple[str, ...]
    labels: tuple[str, ...]
    sets: tuple[SurestSet, ...]


def load_surest(run: Path) -> tuple[SurestSource, ...]:
    """The gallery of surest answers by source; none where an earlier version wrote the run."""
    pictures = {
        (row.get("source", ""), row["set"], row["id"]): Picture(media_path(run, row["media"]))
        for row in _rows(run, table_specs.SUREST_GALLERY)
    }
    by_source: dict[str, list[Row]] = {}
    for row in _rows(run, table_specs.SUREST):
        by_source.setdefault(row.get("source", ""), []).append(row)
    return tuple(_source(name, rows, pictures) for name, rows in by_source.items())


def _source(name: str, rows: list[Row], pictures: dict[tuple[str, str, str], Picture]) -> SurestSource:
    models = tuple(dict.fromkeys(row["answered_by"] for row in rows))
    answers: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        surest_of = row.get("model") or models[0]
        answers.setdefault((row["set"], row["rank"], surest_of), {})[row["answered_by"]] = row

    def image(key: tuple[str, int, str]) -> SurestImage | None:
        by_model = answers.get(key)
        if by_model is None:
            return None
        own = by_model[key[2]]
        others = tuple(
            (model, row["answer"], row["probability"]) for model, row in by_model.items() if model != own["answered_by"]
        )
        picture = pictures[name, key[0], own["id"]]
        return SurestImage(own["id"], picture, own["answer"], own["probability"], others)

    sets = []
    for shown in dict.fromkeys(row["set"] for row in rows):
        ranks = sorted({row["rank"] for row in rows if row["set"] == shown})
        lines = tuple(tuple(image((shown, rank, model)) for model in models) for rank in ranks)
        sets.append(SurestSet(shown, lines))
    labels = tuple("/".join(filter(None, [name, model if "model" in rows[0] else ""])) for model in models)
    return SurestSource(name, models, labels, tuple(sets))


@dataclass(frozen=True)
class Learned:
    """What a network of monitors learned, in pictures by the set they are of ('' where drawn from nothing).

    `network` is None where a monitor shows something without a network of its own; `reason` says why there is none.
    """

    source: str
    monitors: str
    network: OwnedNetwork | None
    pictures: tuple[tuple[str, str, Picture], ...]
    reason: str = ""


def load_learned(run: Path, networks: Networks) -> tuple[Learned, ...]:
    """The pictures of what monitors learned, by network."""
    by_network = grouped(
        ((row.get("source", ""), row["artifact"]), row) for row in _rows(run, table_specs.LEARNED_GALLERY)
    )
    return tuple(
        Learned(
            source,
            rows[0]["monitors"],
            networks.of_artifact(artifact),
            tuple(
                (row["picture"], row["set"], Picture(media_path(run, row["media"]), row["images"]))
                for row in rows
                if row["media"]
            ),
            rows[0]["reason"],
        )
        for (source, artifact), rows in by_network.items()
    )


def _rows(run: Path, table: TableSpec) -> list[Row]:
    return read_rows(run, table.name, None) if has_table(run, table.name) else []
