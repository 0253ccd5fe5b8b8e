"""Pictures with answers: below every image that a page shows, its true class and what the models answered to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from roadworthy.core.tables import TableSpec
from roadworthy.report.page import Answer, AnsweredImage
from roadworthy.report.reading import Picture, Row, has_table, read_rows


def read_answers(run: Path, spec: TableSpec, source: str | None) -> list[Row]:
    """The stored answers to the images of a gallery; none in a run of a version that did not store them."""
    return read_rows(run, spec.name, source) if has_table(run, spec.name) else []


def answered_images(picture: Picture, rows: Iterable[Row]) -> tuple[AnsweredImage, ...]:
    """The images of a picture with the answers of all models; nothing where no answer is stored.

    Rows have the columns `model` and those of `roadworthy.core.tables.ANSWER`.
    """
    by_image: dict[int, list[Row]] = {}
    for row in rows:
        by_image.setdefault(int(row["image"]), []).append(row)
    return tuple(
        AnsweredImage(picture.tile(image), own[0]["label"], tuple(_answer(row) for row in own))
        for image, own in sorted(by_image.items())
        if image < picture.images
    )


def _answer(row: Row) -> Answer:
    right = row["prediction"] == row["label"] if row["label"] else None
    return Answer(row["model"], row["prediction"], row["confidence"], right)
