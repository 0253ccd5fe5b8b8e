"""A run in one line: read from the head of run.json and from verdict.json, which are small, and from nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from roadworthy.core.checked import read_checked
from roadworthy.core.errors import InputError, first_line
from roadworthy.core.record import FIRST_SCHEMA, RECORD, SCHEMA, RunRecord, read_record
from roadworthy.verdict.failures import failed_parts

VERDICT = "verdict.json"
RUNNING, STOPPED, DAMAGED, NO_CRITERIA = "running", "stopped", "damaged", "none"
STATUSES = ("fail", "inconclusive", "pass", NO_CRITERIA, RUNNING, STOPPED, DAMAGED)
"""The verdicts, and what stands in their place where there is none (yet): worst first among the finished."""
WORST_FIRST = ("fail", "inconclusive", "pass")
LARGEST = 512 * 2**20
"""Bytes of a run.json that is read at most."""

_CASES, _PROTOCOLS, _FILES = b'\n "cases": {', b'\n "protocols": {', b'\n "files": {'
_FINISHED = re.compile(rb'\n "finished": ("(?:[^"\\\n]|\\.)*")')
_VERDICT = re.compile(rb'"verdict\.json": *"([0-9a-f]{64})"')
_SECOND_LEVEL = re.compile(rb'\n  ("(?:[^"\\\n]|\\.)*"): \{')


@dataclass(frozen=True)
class Summary:
    """What the list of runs says of one.

    name      the path of its folder below the one that is served
    status    one of `STATUSES`
    headline  the criterion that is worst, in words; empty where there is none
    problem   why it cannot be read, or is not finished
    """

    name: str
    status: str
    study: str = ""
    created: str = ""
    finished: str = ""
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    images: int = 0
    headline: str = ""
    failed: int = 0
    problem: str = ""

    @property
    def text(self) -> str:
        """All of its words, for who looks for one of them."""
        words = (self.name, self.study, self.created, *self.models, *self.data, *self.protocols, self.headline)
        return "\n".join((*words, self.problem)).casefold()


def summarise(run: Path, name: str) -> Summary:
    """The summary of the run in a folder, which has a run.json; a damaged one says why."""
    try:
        return _of_head(run, name)
    except (InputError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return damaged(name, error)


def damaged(name: str, error: Exception) -> Summary:
    """The summary of a run that cannot be read."""
    words = str(error) if isinstance(error, InputError) else f"{RECORD} is damaged: {first_line(error)}"
    return Summary(name, DAMAGED, problem=words)


def _of_head(run: Path, name: str) -> Summary:
    content = (run / RECORD).read_bytes()
    head = _read_head(content)
    schema = head.get("schema")
    if schema != SCHEMA:
        if isinstance(schema, int) and FIRST_SCHEMA <= schema < SCHEMA:
            return of_record(run, name, read_record(run))
        raise InputError(f"{RECORD} was written with run schema {schema}, which this version cannot read")
    sources = head["sources"]
    own: dict[str, Any] = {
        "study": str(head["study"]),
        "created": str(head["created"]),
        "finished": str(head.get("finished") or ""),
        "models": tuple(_named(source, model) for source, part in sources.items() for model in part["models"]),
        "data": tuple(str(part["data"]["name"]) for part in sources.values()),
        "images": sum(int(part["data"].get("images", 0)) for part in sources.values()),
        "protocols": tuple(map(str, head["protocols"])),
    }
    if not own["finished"]:
        return Summary(name, STOPPED, **own, problem="it did not come to its end: run the same command again to go on")
    of_verdict = _VERDICT.search(content, max(content.rfind(_FILES), 0))
    return _judged(run, Summary(name, NO_CRITERIA, **own), of_verdict[1].decode() if of_verdict else None)


def of_record(run: Path, name: str, record: RunRecord) -> Summary:
    """The summary of a run whose whole record is read already."""
    summary = Summary(
        name,
        NO_CRITERIA,
        study=record.study,
        created=record.created,
        finished=record.finished or "",
        models=tuple(record.models),
        data=tuple(source.data.name for source in record.sources.values()),
        protocols=tuple(record.protocols),
        images=sum(source.data.images for source in record.sources.values()),
        failed=len(failed_parts(record)),
    )
    return _judged(run, summary, record.files.get(VERDICT))


def _judged(run: Path, summary: Summary, sha: str | None) -> Summary:
    """With what verdict.json says, whose SHA-256 run.json has."""
    verdict = read_verdict(run, sha)
    if verdict is None:
        return _with(summary, problem=f"{VERDICT} is missing")
    criteria = verdict["criteria"]
    status = str(verdict["status"])
    failed = verdict.get("failed")
    return _with(
        summary,
        status=status if status in STATUSES else NO_CRITERIA,
        headline=worst_criterion(criteria),
        failed=len(failed) if isinstance(failed, list) else summary.failed,
    )


def _with(summary: Summary, **changes: Any) -> Summary:
    return Summary(**{**vars(summary), **changes})


def read_verdict(run: Path, sha: str | None) -> dict[str, Any] | None:
    """What verdict.json of a run says; None where there is none, an `InputError` where it is damaged.

    `sha` is the SHA-256 that run.json has of it.
    """
    path = run / VERDICT
    if not path.is_file():
        return None
    try:
        verdict = from_json(read_checked(path, sha))
        if not isinstance(verdict["status"], str) or not isinstance(verdict["criteria"], list):
            raise ValueError("it has no status or no criteria")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{VERDICT} is damaged: {first_line(error)}") from None
    return dict(verdict)


def worst_criterion(criteria: list[Any]) -> str:
    """The first of the criteria that went worst, with what decided it."""
    for status in WORST_FIRST:
        for entry in criteria:
            if entry.get("status") == status:
                return f"{entry.get('id', '')}: {entry.get('because', '')}"
    return ""


def _named(source: str, model: str) -> str:
    return f"{source}/{model}" if source else str(model)


def _read_head(content: bytes) -> dict[str, Any]:
    """What run.json says before its cases, and the names of its protocols.

    As it is written, a line of its own with one space begins each part, so that most of the file need not be parsed;
    one that is written otherwise is parsed whole.
    """
    if len(content) > LARGEST:
        raise InputError(f"{RECORD} is too large to be one ({len(content):,} bytes)")
    cut, first, last = content.find(_CASES), content.find(_PROTOCOLS), content.rfind(_FILES)
    if 0 < cut < first < last:
        head = from_json(content[:cut].rstrip(b", \n") + b"}")
        if isinstance(head, dict) and content.rstrip().endswith(b"}"):
            names = _SECOND_LEVEL.findall(content, first, last)
            ended = _FINISHED.search(content, last)  # what is known last is written last
            later = {"finished": from_json(ended[1])} if ended else {}
            return {**head, **later, "protocols": [from_json(name) for name in names]}
    whole = from_json(content)
    if not isinstance(whole, dict):
        raise InputError(f"{RECORD} does not hold a JSON object")
    return whole
