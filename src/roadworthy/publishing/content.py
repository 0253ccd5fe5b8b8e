"""What is published of a run: parameters, headline figures with their bounds, tags, and its files but the readouts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from roadworthy.core.errors import InputError, one_line
from roadworthy.core.hashing import digest_file
from roadworthy.core.record import RECORD, RunRecord
from roadworthy.protocols import known_suites
from roadworthy.report.page import Page
from roadworthy.report.reading import number_of
from roadworthy.statistics import Estimate
from roadworthy.verdict.why import stored_deciding_row

HASH_TAG = "roadworthy.run_sha256"
"""The tag that holds the SHA-256 of run.json, by which a run is known again."""
NODES = ("readouts", "artifacts")
"""Folders of a run that stay where they are: they are large, and `verify` needs them whole."""
Value = TypeVar("Value")
MOST_CHARACTERS = 250
"""Of a name; a longer one is cut, and ends with a part of its hash."""


@dataclass(frozen=True)
class Content:
    """What is published of a run.

    sha256     of run.json;  name   of the study;  left_out   metrics without a value, each with the reason
    files      of the run's folder by their name in it;  texts   further files by name, with what they hold
    """

    sha256: str
    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    files: Mapping[str, Path]
    texts: Mapping[str, str]
    left_out: Mapping[str, str]


def content_of(
    path: Path,
    record: RunRecord,
    *,
    settings: Mapping[str, BaseModel],
    verdict: Mapping[str, Any],
    pages: Sequence[Page],
    texts: Mapping[str, str],
) -> Content:
    """What is published of the run in a folder, whose files must be as recorded.

    settings  of its protocols;  verdict  as verdict.json holds it;  texts  are files to add
    """
    estimates = _headline(pages, several=len(record.models) > 1) | _of_criteria(verdict)
    metrics = {
        name + suffix: value
        for name, (estimate, further) in estimates.items()
        for suffix, value in ({"": estimate.value, "_lower": estimate.lo, "_upper": estimate.hi} | further).items()
        if math.isfinite(value)
    }
    statuses = [entry["status"] for entry in verdict["criteria"]]
    metrics |= {f"criteria_{status}": float(statuses.count(status)) for status in ("pass", "fail", "inconclusive")}
    digest = digest_file(path / RECORD)
    return Content(
        sha256=digest,
        name=record.study,
        parameters=_unique(_parameters(record, settings)),
        metrics=_unique(metrics.items()),
        tags=_unique(_tags(record, verdict, digest)),
        files=_files(path, record),
        texts={**texts, **_figures(pages)},
        left_out={
            name: estimate.reason or "not measured"
            for name, (estimate, _) in estimates.items()
            if not math.isfinite(estimate.value)
        },
    )


def clean_name(*parts: str) -> str:
    """A name of ASCII letters, digits, `_`, `-` and `.`, with `/` between its parts: what every tracker takes.

    >>> clean_name("tiny", "Accuracy undisturbed"), clean_name("..", "a/b|<c>")
    ('tiny/accuracy_undisturbed', '_../a_b__c_')
    """
    cleaned = [re.sub(r"[^A-Za-z0-9_.-]", "_", one_line(part)) or "_" for part in parts]
    last = cleaned[-1].lower() if " " in parts[-1] else cleaned[-1]
    name = "/".join(f"_{part}" if part.startswith(".") else part for part in (*cleaned[:-1], last))
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 9]}-{_short_hash(name)}"


def _short_hash(name: str) -> str:
    return sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]


def _unique(named: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Values by name; where two names became the same one, the later is told apart by a number."""
    values: dict[str, Value] = {}
    for name, value in named:
        number, free = 1, name
        while free in values:
            number += 1
            free = f"{name}-{number}"
        values[free] = value
    return values


def _parameters(record: RunRecord, settings: Mapping[str, BaseModel]) -> Iterable[tuple[str, str]]:
    yield "study", record.study
    yield "seed", str(record.seed)
    yield "protocols", ", ".join(record.protocols)
    if suite := _suite(settings):
        yield "suite", suite
    several = len(record.models) > 1
    for source, part in record.sources.items():
        data = part.data
        of_data = {"": data.name, "fingerprint": data.fingerprint, "size": "x".join(map(str, data.size))}
        of_data |= {"images": str(data.images), "objects": str(data.groups), "classes": str(len(data.class_names))}
        yield from ((_parameter(source, "data", key), value) for key, value in of_data.items())
        for name, model in part.models.items():
            files = ", ".join(f"{file} {digest}" for file, digest in model.files.items())
            own = {"": name, "kind": model.origin, "files": files, "fingerprint": model.fingerprint}
            label = ("model", name) if several else ("model",)
            yield from ((_parameter(source, *label, key), value) for key, value in own.items() if value)


def _parameter(source: str, *parts: str) -> str:
    """The name of a parameter, its parts joined by dots: stores of files take no name that begins with another."""
    name = ".".join(filter(None, parts))
    return clean_name(source, name) if source else clean_name(name)


def _suite(settings: Mapping[str, BaseModel]) -> str:
    """The suite whose settings a run has; empty where it has settings of its own."""
    plain = {name: own.model_dump() for name, own in settings.items()}
    suites = known_suites().items()
    return next((n for n, s in suites if {k: v.model_dump() for k, v in s.settings.items()} == plain), "")


Figures = dict[str, tuple[Estimate, dict[str, float]]]
"""Estimates by the name of their metric, and further numbers by their suffix."""


def _headline(pages: Sequence[Page], several: bool) -> Figures:
    """The key figures that the first screen of the report shows, by protocol; by model where there are several."""
    figures: list[tuple[str, tuple[Estimate, dict[str, float]]]] = []
    for page in pages:
        for model, words in page.models.items():
            owner = [page.source or "", model if several else "", page.name]
            for label, _, estimate in words.figures:
                figures.append((clean_name(*filter(None, [*owner, label])), (estimate, {})))
    return _unique(figures)


def _of_criteria(verdict: Mapping[str, Any]) -> Figures:
    """What decides each criterion, beside its threshold."""
    figures = []
    for entry in verdict["criteria"]:
        row = stored_deciding_row(entry)
        threshold = entry["at_least"] if entry.get("at_least") is not None else entry["at_most"]
        numbers = [number_of(row[key]) for key in ("value", "lo", "hi")]
        estimate = Estimate(*numbers, n=row["n"], groups=row["groups"], reason=row["because"])
        figures.append((clean_name("criteria", entry["id"]), (estimate, {"_threshold": float(threshold)})))
    return _unique(figures)


def _tags(record: RunRecord, verdict: Mapping[str, Any], digest: str) -> Iterable[tuple[str, str]]:
    yield HASH_TAG, digest
    yield "roadworthy.verdict", verdict["status"]
    yield "roadworthy.version", str(record.environment.get("packages", {}).get("roadworthy", ""))
    yield "roadworthy.created", record.created
    yield "roadworthy.criteria", ", ".join(entry["id"] for entry in verdict["criteria"])
    for entry in verdict["criteria"]:
        yield f"roadworthy.criterion.{clean_name(entry['id'])}", entry["status"]
    if verdict["failed"]:
        yield "roadworthy.failed", ", ".join(part["name"] for part in verdict["failed"])


def _files(path: Path, record: RunRecord) -> dict[str, Path]:
    """The files of a run besides its nodes; one that is not as recorded is an `InputError`."""
    names = [name for name in record.files if Path(name).parts[0] not in NODES]
    for name in names:
        if not ((path / name).is_file() and digest_file(path / name) == record.files[name]):
            raise InputError(f"{path / name} was changed or is missing: check the run with roadworthy verify")
    return {name: path / name for name in (RECORD, *names)}


def _figures(pages: Sequence[Page]) -> dict[str, str]:
    """The charts of the report as figures of plotly (JSON), one for each view."""
    figures = []
    for page in pages:
        for chart, views in page.charts.items():
            for view in views:
                name = clean_name("figures", f"{page.prefix}{chart}", view["name"])
                figures.append((name, json.dumps({"data": view["data"], "layout": view["layout"]}, allow_nan=False)))
    return {f"{name}.json": figure for name, figure in _unique(figures).items()}
