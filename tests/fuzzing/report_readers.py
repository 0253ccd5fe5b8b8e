"""Whole reports of runs whose names and values are hostile: what a report shows as text must stay text."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.formats import parquet_bytes
from fuzzing.law import Unlawful
from fuzzing.mutations import as_json
from fuzzing.readers import Files, Reader
from fuzzing.run_readers import GOLDEN, as_written, files_of
from roadworthy.api import Run

RUNS = ("run", "monitoring", "localization", "schema2")
MARK = "hostile"
NAMES = (
    *(f"<{MARK}-tag on{MARK}=1>", f"</script><{MARK}-tag>", f"'\"><img src=x on{MARK}=alert(1)>", f"<!--{MARK}"),
    *(f"<svg/on{MARK}=1>", f"javascript:{MARK}()", f"{{{{7*7}}}}{{% {MARK} %}}", f"]]>{MARK}", f"&lt;{MARK}&gt;&#60;"),
    *(
        f"\u202e{MARK}",
        f"{MARK}\0\x1b[2J",
        f"{MARK}\r\n\u2028x",
        f"{MARK} " + "x" * 10_000,
        f"</title></style><{MARK}-tag>",
    ),
    *(f"`;${{{MARK}}}//", f"\\u003c{MARK}\\u003e", f"<script>{MARK}()</script>"),
)
NUMBERS = (0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324, -0.0, 1e15)


class Structure(HTMLParser):
    """The tags with their attributes, the texts of scripts, and addresses of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts: list[tuple[str, str]] = []
        self.addresses: list[str] = []
        self._script = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.addresses += [value or "" for name, value in attributes if name in ("href", "src", "action", "srcdoc")]
        self._script = str(dict(attributes).get("type", "code")) if tag == "script" else ""

    def handle_endtag(self, tag: str) -> None:
        self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts.append((self._script, data))


def check_page(page: str, known: Structure) -> None:
    """Raise where a page has tags, attributes, scripts or addresses that no report has, or JSON that is none."""
    made = Structure(page)
    strange = {name for name in made.tags | made.attributes if MARK in name or name.startswith("on")}
    if strange or not made.attributes <= known.attributes or not made.tags <= known.tags:
        raise Unlawful(
            f"markup from a name: {strange or (made.tags - known.tags) | (made.attributes - known.attributes)}"
        )
    if any(address.strip().lower().startswith(("javascript:", "http", "//", "file:")) for address in made.addresses):
        raise Unlawful("an address that leads elsewhere")
    code = [text for kind, text in made.scripts if kind == "code"]
    if code != [text for kind, text in known.scripts if kind == "code"]:
        raise Unlawful("other scripts than those of every report")
    for kind, text in made.scripts:
        if kind == "application/json":
            json.loads(text)


KNOWN: dict[str, Structure] = {}


def valid_reports(folder: Path) -> Files:
    valid: Files = {"chosen": b"run"}
    attributes, tags = set[str](), set[str]()
    for name in RUNS:
        shutil.copytree(GOLDEN / name, folder / name)
        known = Structure(Run(folder / name).report().read_text())
        tags, attributes = tags | known.tags, attributes | known.attributes
        KNOWN[name] = known
        (folder / name / ".lock").unlink(missing_ok=True)
        valid |= files_of(folder / name)
    for known in KNOWN.values():
        known.tags, known.attributes = (
            tags | {"details", "summary", "ul", "li"},
            attributes | {"open", "class", "title"},
        )
    return valid


def spoil_report(random: Random, valid: Files) -> dict[str, bytes | None]:
    """Names of a run exchanged for hostile ones everywhere, and some numbers for others."""
    run = random.choice(RUNS)
    tables = [name for name in valid if name.startswith(f"{run}/tables/") and name.endswith(".parquet")]
    texts = sorted({text for name in tables for text in _texts(valid[name])})
    renamed = {text: random.choice(NAMES) + str(n) for n, text in enumerate(random.sample(texts, min(len(texts), 6)))}
    made: dict[str, bytes | None] = {"chosen": run.encode()}
    for name in tables:
        made[name] = _changed(random, valid[name], renamed)
    for name in (f"{run}/run.json", f"{run}/verdict.json"):
        made[name] = as_json(_replaced(json.loads(valid[name]), renamed, random))
    record = json.loads(made[f"{run}/run.json"] or b"")
    for name, content in made.items():
        short = name.removeprefix(f"{run}/")
        if isinstance(record.get("files"), dict) and short in record["files"]:
            record["files"][short] = hashlib.sha256(content or b"").hexdigest()
    made[f"{run}/run.json"] = as_written(record)
    return made


def _texts(content: bytes) -> list[str]:
    table = pq.read_table(io.BytesIO(content))
    columns = [table.column(name) for name in table.column_names if name not in VOCABULARY]
    columns = [column for column in columns if pa.types.is_string(column.type)]
    return [str(text) for column in columns for text in column.unique().to_pylist()[:20] if text]


def _changed(random: Random, content: bytes, renamed: dict[str, str]) -> bytes:
    table = pq.read_table(io.BytesIO(content))
    for index, name in enumerate(table.column_names):
        kind, cells = table.schema.field(name).type, table.column(name).to_pylist()
        if pa.types.is_string(kind):
            changed = [renamed.get(cell, cell) if cell else cell for cell in cells]
            if random.random() < 0.03 and cells and name not in VOCABULARY:
                changed[random.randrange(len(cells))] = random.choice(NAMES)
        elif pa.types.is_floating(kind) and random.random() < 0.05 and cells:
            changed = cells[:]
            changed[random.randrange(len(cells))] = random.choice(NUMBERS)
        else:
            continue
        table = table.set_column(index, name, pa.array(changed, kind))
    return parquet_bytes(table)


VOCABULARY = (
    "metric",
    "method",
    "status",
    "media",
    "rule",
    "kind",
    "role",
    "verdict",
    "direction",
    "change",
    "picture",
)
"""Columns whose texts are words of this package, not names that users give."""
WORDS = ("id", "name", "model", "value", "data", "test", "none", "source", "label", "group", "reason")
KEPT = (
    *(
        "files",
        "schema",
        "folder",
        "protocols",
        "fingerprint",
        "status",
        "kind",
        "created",
        "finished",
        "metric",
        "cases",
    ),
    *("over", "direction"),
)


def _replaced(value: Any, renamed: dict[str, str], random: Random) -> Any:
    """A record with texts exchanged, keys too, and a few of them for any hostile name."""
    if isinstance(value, dict):
        return {
            key if key in WORDS else renamed.get(key, key): inner if key in KEPT else _replaced(inner, renamed, random)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_replaced(inner, renamed, random) for inner in value]
    if isinstance(value, str):
        return random.choice(NAMES) if " " in value and random.random() < 0.1 else renamed.get(value, value)
    return value


def read_page(folder: Path) -> None:
    name = (folder / "chosen").read_text()
    page = Run(folder / name).report().read_text(encoding="utf-8")
    (folder / name / ".lock").unlink(missing_ok=True)
    check_page(page, KNOWN[name])


READERS = [
    Reader(
        "whole reports",
        ("report/*.py", "protocols/*/page.py", "protocols/*/facts.py"),
        valid_reports,
        spoil_report,
        read_page,
        writes="",
        inputs=500,
    ),
]
