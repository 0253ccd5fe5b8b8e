"""The viewer as a web application: it answers questions about the runs below one folder, and changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from roadworthy.core.checked import checked
from roadworthy.core.errors import InputError, RoadworthyError
from roadworthy.core.files import inside
from roadworthy.core.record import RECORD, read_recorded, recorded_hash
from roadworthy.viewer.answers import PAGE, SHOWS, SORTS, CaseAnswers, has_classes, images_page
from roadworthy.viewer.comparisons import Comparisons
from roadworthy.viewer.contexts import REPORT, run_context
from roadworthy.viewer.figures import Headlines
from roadworthy.viewer.guarding import REPORT_POLICY, Guard
from roadworthy.viewer.index import SORTS as LIST_SORTS
from roadworthy.viewer.index import Located, Query, RunIndex
from roadworthy.viewer.opened import OpenedRun, OpenedRuns
from roadworthy.viewer.pages import LABELS, STATIC, Links, render
from roadworthy.viewer.pictures import OPENING, NoPicture, Pictures, as_png
from roadworthy.viewer.progress import Watch
from roadworthy.viewer.summaries import DAMAGED, RUNNING, STOPPED
from roadworthy.viewer.tables import TableQuery

KINDS = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".yaml": "text/plain; charset=utf-8",
    ".tex": "text/plain; charset=utf-8",
    ".png": "image/png",
}
"""What a browser may show of the files of a run; all others it may only save."""
LINKED = ("value", "count", "accuracy", "images", "prediction", "id")
"""The column of a table whose cells lead to images: the first that it has."""
MOST_CASES = 300
"""Cases of a running study that its page lists at most."""
MOST_OTHERS = 500
"""Runs that the page of a run offers to compare it with, at most: the latest."""

Endpoint = Callable[["Viewer", Request], Response]


def make_app(folder: str | Path, host: str = "127.0.0.1") -> Guard:
    """The viewer of the runs below a folder, as an ASGI application that is known by the name `host`."""
    viewer = Viewer(Path(folder))
    routes = [
        Route("/", viewer.list_runs),
        Route("/compare", viewer.compare),
        Route("/static/{name}", viewer.static),
        Route("/run/{run}", viewer.show_run),
        Route("/run/{run}/report.html", viewer.report),
        Route("/run/{run}/table/{table}", viewer.table),
        Route("/run/{run}/images", viewer.images),
        Route("/run/{run}/picture/{case}/{row:int}.png", viewer.picture),
        Route("/run/{run}/file/{name:path}", viewer.file),
    ]
    handlers: Any = {HTTPException: _not_found, Exception: _failed}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host)


def _answers(endpoint: Endpoint) -> Callable[[Viewer, Request], Awaitable[Response]]:
    """An endpoint that reads files, in a thread of its own; what cannot be read is a page that says why."""

    @wraps(endpoint)
    async def answer(viewer: Viewer, request: Request) -> Response:
        try:
            return await run_in_threadpool(endpoint, viewer, request)
        except RoadworthyError as error:
            raise HTTPException(404, str(error)) from None
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise HTTPException(404, f"this cannot be read ({type(error).__name__}: {error})") from None

    return answer


class Viewer:
    """What the pages show, from the files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.index, self.opened, self.pictures = RunIndex(folder), OpenedRuns(), Pictures()
        self.watch, self.comparisons, self.headlines = Watch(), Comparisons(), Headlines()
        self.links = Links()

    @_answers
    def list_runs(self, request: Request) -> Response:
        """The list of runs, chosen and sorted, a page of it."""
        asked = request.query_params
        sort = asked.get("sort", "")
        query = Query(
            words=asked.get("words", ""),
            status=asked.get("status", "") if asked.get("status", "") in LABELS else "",
            model=asked.get("model", ""),
            sort=sort if sort in LIST_SORTS else LIST_SORTS[0],
            ascending="ascending" in asked,
            page=_whole(asked.get("page", "")),
        )
        listing = self.index.listing(query)
        headlines = {run.id: self.headlines.of(run.path, run.summary) for run in listing.shown}
        refresh = any(run.summary.status == RUNNING for run in listing.shown)
        return self._page(
            request,
            "index.html.j2",
            query=query,
            listing=listing,
            headlines=headlines,
            refresh=refresh,
            folder=self.index.root.name,
        )

    @_answers
    def show_run(self, request: Request) -> Response:
        """One run: verdict, tables, files; or how far it is; or what is wrong with it."""
        run = self._run(request)
        summary, problem = run.summary, ""
        if summary.status in (RUNNING, STOPPED):
            progress = self.watch.look(run.path, run.plan) if run.plan else None
            running = summary.status == RUNNING
            return self._page(
                request,
                "progress.html.j2",
                **{"run": run, "progress": progress, "running": running, "refresh": running},
                has_classes=has_classes,
                most=MOST_CASES,
            )
        try:
            if summary.status == DAMAGED:
                raise InputError(summary.problem)
            opened = self.opened.open(run.path)
            context = run_context(run, opened)
        except RoadworthyError as error:
            self.index.forget(run, error)
            problem = str(error)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problem = f"its files make no sense ({type(error).__name__}: {error})"
            self.index.forget(run, InputError(problem))
        if problem:
            return self._page(request, "damaged.html.j2", run=run, problem=problem, refresh=False)
        others = [other for other in self.index.runs().values() if other.id != run.id and _is_finished(other)]
        others.sort(key=lambda other: other.summary.created, reverse=True)
        return self._page(request, "run.html.j2", run=run, refresh=False, others=others[:MOST_OTHERS], **context)

    @_answers
    def report(self, request: Request) -> Response:
        """The report of a run as it was written, shut in: it belongs to no origin and loads nothing."""
        run = self._run(request)
        path = inside(run.path, REPORT)
        if not path.is_file() or REPORT not in self._open(run).record.files:
            raise HTTPException(404, "the run has no report: write it with roadworthy report")
        return self._report_of(run.path)

    @_answers
    def table(self, request: Request) -> Response:
        """A table of a run, sorted and filtered, a page of it; its rows lead to the images behind them."""
        run, asked = self._run(request), request.query_params
        opened, name = self._open(run), request.path_params["table"]
        stored = opened.table(name)
        where = tuple((column, asked.get(f"where.{column}", "")) for column in stored.columns)
        query = TableQuery(
            words=asked.get("words", ""),
            where=tuple(pair for pair in where if pair[1]),
            sort=asked.get("sort", "") if asked.get("sort", "") in stored.columns else "",
            descending="descending" in asked,
            page=_whole(asked.get("page", "")),
        )
        spec = opened.specs.get(name)
        page = stored.page(query)
        leads = spec is not None and bool(page.rows) and self._leads_to_images(opened, name, page.rows[0][1])
        return self._page(
            request,
            "table.html.j2",
            **{"run": run, "name": name, "spec": spec, "table": page, "query": query, "leads": leads, "refresh": False},
            linked=next(
                (column for column in LINKED if column in page.columns), page.columns[0] if page.columns else ""
            ),
            where=dict(query.where),
            asked={"words": query.words, **{f"where.{column}": value for column, value in query.where}},
            filters=stored.choices(("source", *spec.key) if spec else ()),
        )

    def _leads_to_images(self, opened: OpenedRun, table: str, row: Any) -> bool:
        """Whether single images stand behind a row of a table, the first one for all."""
        try:
            images = opened.row_images(table, row)
        except (RoadworthyError, OSError):
            return False
        return bool(images.cases) or any(case.failure for case in images.behind.cases)

    @_answers
    def images(self, request: Request) -> Response:
        """The images behind a row of a table, with what every model answered to them."""
        run, asked = self._run(request), request.query_params
        opened = self._open(run)
        name, number = asked.get("table", ""), _whole(asked.get("row", ""), least=0)
        row = opened.table(name).row(number)
        images = opened.row_images(name, row)
        context: dict[str, Any] = {"run": run, "table": name, "number": number, "row": row, "images": images}
        if not images.cases:
            return self._page(request, "images.html.j2", **context, page=None, refresh=False)
        case = next((case for case in images.cases if case.hash == asked.get("case")), images.cases[0])
        show, sort = asked.get("show", ""), asked.get("sort", "")
        shown = {"show": show if show in SHOWS else SHOWS[0], "sort": sort if sort in SORTS else SORTS[0]}
        names = opened.record.sources[case.source].data.class_names
        label = asked.get("label", "") if asked.get("label", "") in names else ""
        page = images_page(
            run.path, opened.record, images, case, **shown, page=_whole(asked.get("page", "")), label=label
        )
        why_not = self.pictures.why_not(run.path, opened.record, case.hash)
        return self._page(
            request,
            "images.html.j2",
            **context,
            case=case,
            page=page,
            **shown,
            label=label,
            shows=SHOWS,
            sorts=SORTS,
            class_names=names,
            why_not=why_not,
            stored=self._stored_pictures(opened, case.hash),
            per_page=PAGE,
            size=opened.record.sources[case.source].data.size or [64, 64],
            refresh=why_not == OPENING,
        )

    def _stored_pictures(self, opened: OpenedRun, case: str) -> dict[int, str]:
        """Pictures in the run that show single images of a case, by row: those that the report needed."""
        start = f"media/seen-{opened.record.cases[case].stimulus.value().key}-"
        names = {
            name: name.removeprefix(start).removesuffix(".png")
            for name in opened.record.files
            if name.startswith(start)
        }
        return {int(row): name for name, row in names.items() if row.isdigit()}

    @_answers
    def picture(self, request: Request) -> Response:
        """An image as a case showed it, pixel by pixel, or as a thumbnail."""
        run, case, row = self._run(request), request.path_params["case"], request.path_params["row"]
        opened = self._open(run)
        if case not in opened.record.cases:
            raise HTTPException(404, "the run has no such case")
        answers = CaseAnswers(run.path, case, opened.record.cases[case])
        if not 0 <= row < len(answers):
            raise HTTPException(404, "the case has no such image")
        import numpy as np

        image_id = answers.taken(["id"], np.array([row]))["id"][0]
        try:
            image = self.pictures.image(run.path, opened.record, case, row, image_id)
        except NoPicture as error:
            raise HTTPException(404, str(error)) from None
        content = as_png(image, thumbnail="small" in request.query_params)
        return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=3600"})

    @_answers
    def file(self, request: Request) -> Response:
        """A file of a run: one that run.json names, or run.json itself, and nothing else that may lie there."""
        run, name = self._run(request), request.path_params["name"]
        if name != RECORD and name not in self._open(run).record.files:
            raise HTTPException(404, "the run names no such file")
        path = inside(run.path, name)
        if not path.is_file() or path.is_symlink():
            raise HTTPException(404, "the file is missing")
        if name == REPORT:
            return self._report_of(run.path)
        kind = KINDS.get(path.suffix)
        own: dict[str, Any] = {"media_type": kind or "application/octet-stream"}
        own["headers"] = {"content-disposition": "attachment"} if kind is None else {}
        with checked(path, None if name == RECORD else recorded_hash(run.path, name)) as content:
            return FileResponse(content, **own) if isinstance(content, Path) else Response(content, **own)

    def _report_of(self, run: Path) -> Response:
        headers = {"content-security-policy": REPORT_POLICY}
        return HTMLResponse(read_recorded(run, REPORT), headers=headers)

    @_answers
    def compare(self, request: Request) -> Response:
        """Two runs side by side, the earlier one as the baseline: the page of `roadworthy compare`, shut in as a report
        is.
        """
        ids = request.query_params.getlist("run")
        runs = [self.index.find(id_) for id_ in ids]
        if len(ids) != 2 or None in runs or ids[0] == ids[1]:
            return self._page(
                request,
                "message.html.j2",
                title="Compare two runs",
                refresh=False,
                text="Choose two different runs in the list: the earlier one is the baseline.",
            )
        before, after = sorted((run for run in runs if run is not None), key=lambda run: run.summary.created)
        try:
            page = self.comparisons.page(before.path, after.path)
        except RoadworthyError as error:
            text = f"{before.summary.name} and {after.summary.name} cannot be compared: {error}"
            return self._page(request, "message.html.j2", title="Compare two runs", text=text, refresh=False)
        return HTMLResponse(page, headers={"content-security-policy": REPORT_POLICY})

    @_answers
    def static(self, request: Request) -> Response:
        """A file that pages load."""
        name = request.path_params["name"]
        if name not in STATIC:
            raise HTTPException(404, "there is no such file")
        path, kind = STATIC[name]
        return FileResponse(path, media_type=kind, headers={"cache-control": "no-cache"})

    def _run(self, request: Request) -> Located:
        run = self.index.find(request.path_params["run"])
        if run is None:
            raise HTTPException(404, "there is no such run: it may have been moved or removed")
        return run

    def _open(self, run: Located) -> OpenedRun:
        if run.summary.status == DAMAGED:
            raise InputError(f"the run is damaged: {run.summary.problem}")
        return self.opened.open(run.path)

    def _page(self, request: Request, template: str, **context: Any) -> Response:
        """A page; where the browser has the same one already, only that it is so."""
        body = render(template, self.links, **context).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(body, headers=headers)


def _is_finished(run: Located) -> bool:
    return run.summary.status not in (RUNNING, STOPPED, DAMAGED)


def _whole(text: str, least: int = 1) -> int:
    """A number of a page or row from an address; the least one where it is none."""
    return max(least, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else least


async def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    text = error.detail if isinstance(error, HTTPException) else str(error)
    page = render("message.html.j2", Links(), title="Not found", text=text, refresh=False)
    return HTMLResponse(page, status_code=status)


async def _failed(request: Request, error: Exception) -> Response:
    page = render(
        "message.html.j2",
        Links(),
        title="This page could not be made",
        refresh=False,
        text="This is a defect of roadworthy, not of the run; please report it with what the terminal shows.",
    )
    return HTMLResponse(page, status_code=500)
