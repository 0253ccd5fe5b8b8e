"""The pages of the viewer as HTML: templates, and the addresses that they link to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2

from roadworthy.report import page as report_page
from roadworthy.report.frame import to_the_minute
from roadworthy.report.words import MISSING, plural, whole
from roadworthy.viewer.tables import cell_text

HERE = Path(__file__).parent
STATIC = {
    "style.css": (report_page.HERE / "style.css", "text/css"),
    "viewer.css": (HERE / "viewer.css", "text/css"),
    "viewer.js": (HERE / "viewer.js", "text/javascript"),
    "bundle.js": (HERE / "bundle.js", "text/javascript"),
    "icon.svg": (HERE / "icon.svg", "image/svg+xml"),
}
"""The files that pages load, by the name that they load them under."""
LABELS = {
    "pass": "pass",
    "fail": "fail",
    "inconclusive": "inconclusive",
    "none": "no criteria",
    "running": "running",
    "stopped": "not finished",
    "damaged": "damaged",
}
"""What pages call a status."""
PILLS = {"running": "running", "stopped": "inconclusive", "damaged": "fail"}
"""The colours of a status that is no verdict."""


class Links:
    """The addresses of a viewer that is asked page by page."""

    live = True

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def static(self, name: str) -> str:
        """A file that pages load."""
        return f"{self.root}static/{name}"

    @property
    def index(self) -> str:
        """The list of runs."""
        return self.root

    def run(self, id_: str) -> str:
        """A run."""
        return f"{self.root}run/{id_}"

    def report(self, id_: str) -> str:
        """The report of a run."""
        return f"{self.run(id_)}/report.html"

    def table(self, id_: str, name: str, **query: Any) -> str:
        """A table of a run."""
        return with_query(f"{self.run(id_)}/table/{quote(name, safe='')}", query)

    def images(self, id_: str, **query: Any) -> str:
        """The images behind a row of a table."""
        return with_query(f"{self.run(id_)}/images", query)

    def picture(self, id_: str, case: str, row: int, **query: Any) -> str:
        """An image as a case showed it."""
        return with_query(f"{self.run(id_)}/picture/{case}/{row}.png", query)

    def file(self, id_: str, name: str) -> str:
        """A file of a run."""
        return f"{self.run(id_)}/file/{quote(name)}"


class BundleLinks(Links):
    """The addresses of a viewer that was written as files; `root` leads from a page to its folder."""

    live = False

    @property
    def index(self) -> str:
        """The list of runs."""
        return f"{self.root}index.html"

    def run(self, id_: str) -> str:
        """A run."""
        return f"{self.root}runs/{id_}/index.html"

    def report(self, id_: str) -> str:
        """The report of a run."""
        return f"{self.root}runs/{id_}/report.html"

    def table(self, id_: str, name: str, **query: Any) -> str:
        """A table of a run."""
        return f"{self.root}runs/{id_}/table-{quote(name, safe='')}.html"

    def file(self, id_: str, name: str) -> str:
        """A file of a run."""
        return f"{self.root}runs/{id_}/files/{quote(name)}"


def with_query(address: str, query: Mapping[str, Any]) -> str:
    """An address with a question; what is empty is left out.

    >>> with_query("/", {"words": "fog 3", "page": 1, "model": ""})
    '/?words=fog+3&page=1'
    """
    text = urlencode({key: value for key, value in query.items() if value not in ("", None, False)}, doseq=True)
    return f"{address}?{text}" if text else address


def render(template: str, links: Links, **context: Any) -> str:
    """A page from its template."""
    page = (
        environment()
        .get_template(template)
        .render(
            links=links,
            version=metadata.version("roadworthy"),
            labels=LABELS,
            pills=PILLS,
            plural=plural,
            whole=whole,
            to_the_minute=to_the_minute,
            cell_text=cell_text,
            missing=MISSING,
            with_query=with_query,
            **context,
        )
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def environment() -> jinja2.Environment:
    """Where the templates are: everything that they show is escaped."""
    return report_page.environment(HERE / "templates")
