"""The charts of a report as figures of plotly, for notebooks and for those who draw on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.report.drawing import View
from roadworthy.report.page import Page

GROUND = {"paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}
"""Behind a figure, so that it can be read in a dark notebook, too."""


def chart_figures(pages: Sequence[Page]) -> dict[str, Any]:
    """Every chart of some pages by its name, as a `plotly.graph_objects.Figure`; views of one as `name: view`."""
    make = _maker()
    return {name: make(view) for name, view in _views(pages)}


def find_figure(pages: Sequence[Page], name: str) -> Any:
    """One of them; the name of a chart alone stands for its first view."""
    make, known = _maker(), dict(_views(pages))
    first = next((full for full in known if full == name or full.startswith(f"{name}: ")), None)
    if first is None:
        raise UnknownName("figure of the run", name, known)
    return make(known[first])


def _views(pages: Sequence[Page]) -> Iterator[tuple[str, View]]:
    for page in pages:
        for name, chart in page.charts.items():
            for view in chart:
                yield f"{page.prefix}{name}" + (f": {view['name']}" if len(chart) > 1 else ""), view


def _maker() -> Any:
    """What makes a figure of a view."""
    try:
        from plotly.graph_objects import Figure
    except ImportError:
        raise InputError("figures are objects of plotly, which is not installed: pip install plotly") from None
    return lambda view: Figure(data=view["data"], layout={**view["layout"], **GROUND})
