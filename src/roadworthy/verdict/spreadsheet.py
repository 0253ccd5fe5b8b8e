"""A verdict as a spreadsheet (.xlsx): a row per criterion and condition, down to the file and hash of its evidence.

Names come from files: every text is written as text, so that none that starts like a formula becomes one.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from roadworthy.core.errors import InputError, install_command
from roadworthy.core.record import RunRecord
from roadworthy.verdict.argument.artefacts import artefacts_of
from roadworthy.verdict.argument.tree import criterion_of
from roadworthy.verdict.why import stored_deciding_row

LONGEST = 32_000
"""Characters of a cell: Excel takes 32,767."""
WIDEST = 60
COLOURS = {
    "pass": {"bg_color": "#E6F4EC", "font_color": "#14693A"},
    "fail": {"bg_color": "#FDECEC", "font_color": "#A61B1B"},
    "inconclusive": {"bg_color": "#FDF3DA", "font_color": "#7A5200"},
}
CRITERIA = (
    "Requirement",
    "Status",
    "Hazard",
    "Triggering condition",
    "Question",
    "Metric",
    "Selection",
    "Over",
    "Acceptance criterion",
    "Threshold",
    "Confidence",
    "Validation target",
    "Condition",
    "Value",
    "Lower bound",
    "Upper bound",
    "Images",
    "Independent units",
    "Unit",
    "Further units",
    "Bounds by",
    "Decides",
    "Because",
    "Remark",
    "Evidence file",
    "SHA-256",
)
"""The columns of the matrix. A threshold is the acceptance criterion, a number of units the validation target."""

Row = Sequence[Any]


def to_xlsx(verdict: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]) -> bytes:
    """The bytes of the file, for a verdict (the content of verdict.json) and the record of its run."""
    try:
        import xlsxwriter
    except ImportError:
        raise InputError(f"a spreadsheet needs the extra xlsx: {install_command('xlsx')}") from None
    stream = io.BytesIO()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    book = xlsxwriter.Workbook(stream, options)
    book.set_properties({"title": "Roadworthy: verdict", "created": _created(record)})
    formats = {name: book.add_format(look) for name, look in COLOURS.items()}
    formats["head"] = book.add_format({"bold": True, "text_wrap": True, "valign": "top", "bottom": 1})
    _sheet(book, "Criteria", CRITERIA, [*_criteria(verdict, record, protocols)], formats)
    _sheet(book, "Summary", ("Item", "Value"), [*_summary(verdict)], formats)
    head = ("Criterion", "Kind", "Artefact", "File", "SHA-256 or fingerprint", "Remark")
    _sheet(book, "Evidence", head, [*_evidence(verdict, record, protocols)], formats)
    if record is not None:
        _sheet(book, "Models", ("Model", "Kind", "File", "SHA-256", "Fingerprint"), [*_models(record)], formats)
        _sheet(book, "Provenance", ("Item", "Value"), [*_provenance(record)], formats)
    book.close()
    return stream.getvalue()


def _created(record: RunRecord | None) -> datetime:
    """The date of the run, so that the same verdict is the same file."""
    try:
        return datetime.fromisoformat((record.finished or record.created) if record else "").replace(tzinfo=None)
    except ValueError:
        return datetime(2000, 1, 1)


def _sheet(book: Any, name: str, head: Row, rows: Sequence[Row], formats: Mapping[str, Any]) -> None:
    """A sheet with a fixed head, a filter and columns as wide as what they hold."""
    sheet = book.add_worksheet(name)
    widths = [len(str(column)) + 3 for column in head]
    for column, text in enumerate(head):
        sheet.write_string(0, column, text, formats["head"])
    for number, row in enumerate(rows, start=1):
        for column, value in enumerate(row):
            look = formats.get(value) if head[column] in ("Status", "Value") and isinstance(value, str) else None
            _write(sheet, number, column, value, look)
            widths[column] = max(widths[column], len(f"{value:.6g}" if isinstance(value, float) else str(value)) + 2)
    for column, width in enumerate(widths):
        sheet.set_column(column, column, min(width, WIDEST))
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, max(len(rows), 1), len(head) - 1)


def _write(sheet: Any, row: int, column: int, value: Any, look: Any) -> None:
    if value is None or value == "":
        return
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        sheet.write_number(row, column, value, look)
        return
    text = str(value).encode("utf-8", "replace").decode("utf-8")
    sheet.write_string(row, column, text if len(text) <= LONGEST else f"{text[:LONGEST]} ...", look)


def _criteria(verdict: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]) -> Iterator[Row]:
    for entry in verdict["criteria"]:
        criterion, deciding = criterion_of(entry), stored_deciding_row(entry)
        for row in entry["rows"]:
            file, sha = _evidence_file(entry, record, protocols)
            yield (
                criterion.id,
                row["status"],
                criterion.hazard,
                criterion.triggering_condition,
                criterion.question or "",
                criterion.figure,
                criterion.selection,
                criterion.over,
                criterion.limit,
                criterion.threshold,
                row.get("confidence", criterion.confidence),
                criterion.validation_target or "none",
                ", ".join(f"{name} {value}" for name, value in row["where"].items()),
                *(row[name] for name in ("value", "lo", "hi", "n", "groups", "unit", "further_groups", "method")),
                "yes" if row is deciding else "",
                row["because"],
                entry["remark"],
                file,
                sha,
            )


def _evidence_file(entry: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]) -> tuple[str, str]:
    """The table that holds the row; its readouts, models and data are on the sheet of evidence."""
    listed = artefacts_of(entry, record, protocols[entry["id"]]) if record and entry["id"] in protocols else []
    table = next((one for one in listed if one.kind == "table"), None)
    return (table.file, table.sha256) if table else ("", "")


def _evidence(verdict: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]) -> Iterator[Row]:
    for entry in verdict["criteria"]:
        if record is not None and entry["id"] in protocols:
            for one in artefacts_of(entry, record, protocols[entry["id"]], baseline=verdict.get("baseline")):
                yield entry["id"], one.kind, one.name, one.file, one.sha256, one.remark


def _summary(verdict: Mapping[str, Any]) -> Iterator[Row]:
    yield "Verdict", verdict["status"]
    statuses = [entry["status"] for entry in verdict["criteria"]]
    yield from ((f"Criteria: {status}", statuses.count(status)) for status in COLOURS)
    for answer in verdict.get("questions", ()):
        yield f"Question {answer['question']}", answer["status"]
        yield f"Question {answer['question']}: because", answer["because"]
    yield from ((f"Failed: {part['name']}", part["reason"]) for part in verdict["failed"])
    yield from ((f"Head: {name}", str(value)) for name, value in verdict.get("decision", {}).items())
    yield from ((f"Baseline: {name}", value) for name, value in verdict.get("baseline", {}).items())


def _models(record: RunRecord) -> Iterator[Row]:
    for name, model in record.models.items():
        for file, sha in model.files.items() or [("", "")]:
            yield name, model.origin, file, sha, model.fingerprint


def _provenance(record: RunRecord) -> Iterator[Row]:
    yield "Study", record.study
    yield "Seed", record.seed
    yield "Created", record.created
    yield "Finished", record.finished or ""
    for name, source in record.sources.items():
        of_source = f" of {name}" if name else ""
        data = source.data
        yield f"Data{of_source}", data.name
        yield f"Data{of_source}: images", data.images
        yield f"Data{of_source}: independent objects", data.groups
        yield f"Data{of_source}: fingerprint", data.fingerprint
    for name, value in record.environment.items():
        if isinstance(value, dict):
            yield from ((f"{name}: {key}", str(own)) for key, own in value.items())
        else:
            yield name, str(value)
    yield from ((f"File {name}", sha) for name, sha in record.files.items())
