"""The viewer as files that any web server can hand out: a list that is filtered in the browser, and a page per run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.core.checked import checked
from roadworthy.core.errors import InputError, RoadworthyError
from roadworthy.core.files import inside
from roadworthy.core.record import RECORD, recorded_hash
from roadworthy.engine.folder import writing
from roadworthy.engine.progress import terminal_progress
from roadworthy.viewer.contexts import REPORT, run_context
from roadworthy.viewer.figures import Headlines
from roadworthy.viewer.index import Located, RunIndex, sort_runs
from roadworthy.viewer.opened import OpenedRun, OpenedRuns
from roadworthy.viewer.pages import LABELS, STATIC, BundleLinks, render
from roadworthy.viewer.summaries import DAMAGED, RUNNING, STOPPED
from roadworthy.viewer.tables import TableQuery, cell_text

COPIED = ("study.yaml", "verdict.json", "verdicts.json")
"""Files of a run that are copied besides its tables as CSV and its report."""
ROWS = 500
"""Rows in a file of a table."""


@dataclass(frozen=True)
class Written:
    """What a bundle holds."""

    runs: int
    files: int


def write_bundle(folder: Path, out: Path) -> Written:
    """Write the viewer of the runs below a folder to a folder that is new or empty; it needs nothing but a web server.

    The images behind figures need the data, and so the viewer itself: they are not in it.
    """
    with _new_folder(out, folder):
        runs = sort_runs(RunIndex(folder).runs().values(), "created", ascending=False)
        opened, headlines, entries = OpenedRuns(), Headlines(), []
        for name in ("style.css", "viewer.css", "bundle.js", "icon.svg"):
            _write(out / "static" / name, STATIC[name][0].read_text(encoding="utf-8"))
        with terminal_progress("writing pages", len(runs)) as advance:
            for run in runs:
                status = _write_run(run, opened, out)
                entries.append(_entry(run, status, headlines.of(run.path, run.summary)))
                advance(1)
        _write(out / "runs.json", json.dumps({"labels": LABELS, "runs": entries}, ensure_ascii=False))
        page = render("bundle.html.j2", BundleLinks(""), folder=folder.name, count=len(runs), refresh=False)
        _write(out / "index.html", page)
    return Written(len(runs), sum(path.is_file() for path in out.rglob("*")))


@contextmanager
def _new_folder(out: Path, folder: Path) -> Iterator[None]:
    """A folder to write to, which must be new or empty, and not among the runs."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not empty: give a new folder for the bundle with `bundle=`")
    if out.resolve().is_relative_to(folder):
        raise InputError(f"{out} lies in the folder of the runs itself: give another for the bundle with `bundle=`")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        yield


def _entry(run: Located, status: str, headline: str) -> dict[str, Any]:
    """A run in the list."""
    summary = run.summary
    return {
        "id": run.id,
        "status": status,
        **{name: getattr(summary, name) for name in ("name", "study", "created", "models", "data", "protocols")},
        **{"images": summary.images, "failed": summary.failed, "headline": summary.problem or headline},
    }


def _write_run(run: Located, opened: OpenedRuns, out: Path) -> str:
    """Write the pages of a run; the status that it has by all that was read of it."""
    home, links, status = out / "runs" / run.id, BundleLinks("../../"), run.summary.status
    home.mkdir(parents=True)
    problem = run.summary.problem
    if status not in (RUNNING, STOPPED, DAMAGED):
        try:
            _write_whole(run, opened.open(run.path), home, links)
            return status
        except (RoadworthyError, ValueError, LookupError, TypeError, AttributeError) as error:
            status, problem = DAMAGED, str(error)
    template = "damaged.html.j2" if status == DAMAGED else "message.html.j2"
    text = "This run was still being written when the bundle was made." if status == RUNNING else problem
    page = render(template, links, run=run, problem=problem, title=run.summary.name, text=text, refresh=False)
    _write(home / "index.html", page)
    return status


def _write_whole(run: Located, opened: OpenedRun, home: Path, links: BundleLinks) -> None:
    context = run_context(run, opened)
    tables = [(name, about) for name, about in context["tables"] if _write_table(run, opened, name, home, links)]
    there = [name for name in (*COPIED, *(f"tables/{name}.csv" for name, _ in tables)) if name in opened.record.files]
    for name in (RECORD, *there):
        _copy(run.path, name, home / "files" / name)
    if context["has_report"]:
        _copy(run.path, REPORT, home / REPORT)
    files = [(name, sha) for name, sha in context["files"] if name in (RECORD, *there)]
    more = 1 + len(opened.record.files) - len(files)
    page = render(
        "run.html.j2",
        links,
        run=run,
        others=[],
        refresh=False,
        **{**context, "tables": tables, "files": files, "more_files": more},
    )
    _write(home / "index.html", page)


def _write_table(run: Located, opened: OpenedRun, name: str, home: Path, links: BundleLinks) -> bool:
    """Write a table page by page; False where it cannot be read."""
    try:
        stored = opened.table(name)
        first = stored.page(TableQuery(), ROWS)
    except RoadworthyError:
        return False
    for number in range(1, first.pages + 1):
        page = first if number == 1 else stored.page(TableQuery(page=number), ROWS)
        rows = [[cell_text(row[column]) for column in page.columns] for _, row in page.rows]
        _write(home / "tables" / name / f"{number}.json", json.dumps(rows, ensure_ascii=False))
    context: dict[str, Any] = {"run": run, "name": name, "spec": opened.specs.get(name), "table": first, "leads": False}
    _write(
        home / f"table-{name}.html",
        render("table.html.j2", links, query=TableQuery(), refresh=False, linked="", **context),
    )
    return True


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def _copy(run: Path, name: str, target: Path) -> None:
    """Copy a file of a run, as it was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with checked(inside(run, name), None if name == RECORD else recorded_hash(run, name)) as content:
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target, follow_symlinks=False)
