"""A page: what a protocol shows of a run. The report is handed the pages of a run and puts its frame around them.

A protocol writes a Jinja template that defines some of the macros named in `PARTS`. In it are the kit
(`macros.html.j2`, the functions of `words`), `facts`, and `prefix`, which starts every id of the page, so that no two
pages of a report collide, nor two copies of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from roadworthy.metrics import Metric, metrics_of
from roadworthy.report import drawing, words
from roadworthy.report.facts import Facts
from roadworthy.report.packing import pack_tables, table_end
from roadworthy.report.reading import read_arrow
from roadworthy.statistics import Estimate

HERE = Path(__file__).parent
PARTS = ("note", "alarms", "cards", "sections", "reading", "metrics")
"""What a template may define, in the order of the report: words under its sentences in the summary, alarms and cards
below them, its sections, items of 'How to read' and definitions of metrics, one on a line (equal ones are shown once).
"""
PLAIN_ROWS = 200
FEW_MODELS = 2
"""Up to this many models there is room for whole sentences on each; beyond it words are brief."""


def chart_names(charts: drawing.Charts, start: str) -> list[str]:
    """The ids of the charts that start with a text: those that one choice switches."""
    return [name for name in charts if name.startswith(start)]


def words_for(protocol: str) -> dict[str, Callable[..., Any]]:
    """The functions of the kit that speak of metrics by name, each metric as this protocol means it.

    A metric is looked up once, as it is known then: make them anew for every page.
    """
    own = metrics_of(protocol)
    known: dict[str, Metric] = {}

    def words_of(metric: str | Metric) -> Metric:
        if isinstance(metric, Metric):
            return metric
        if metric not in known:
            known[metric] = words.words_of(metric, own)
        return known[metric]

    return {
        "words_of": words_of,
        "labels_of": lambda metrics: [words_of(metric).label for metric in metrics],
        "number": lambda metric, value: words.number(words_of(metric), value),
        "bounds": lambda metric, lo, hi: words.bounds(words_of(metric), lo, hi),
    }


KIT = {
    "prefix": "",
    "test_limits": "",
    "page_sentences": (),
    "page_models": {},
    "few_models": FEW_MODELS,
    "colours": tuple(colour for colour, _ in drawing.LOOKS),
    "chart_names": chart_names,
    "whole": words.whole,
    "plural": words.plural,
    "listing": words.listing,
    "signed": words.signed,
    "p_value": words.p_value,
    "table_end": table_end,
    **words_for(""),
}


@dataclass(frozen=True)
class ModelWords:
    """What the summary says of one model: key figures (label, metric, value), sentences, the same in brief.

    `rule` states what the words rest on, such as a threshold.
    """

    figures: tuple[tuple[str, str, Estimate], ...]
    sentences: tuple[str, ...]
    brief: tuple[str, ...]
    rule: str = ""


@dataclass(frozen=True)
class Answer:
    """The class that a model answered to an image, with its confidence, and whether it is the true one.

    `right` is None where the image shows none of the classes, so that no answer is right or wrong.
    """

    model: str
    prediction: str
    confidence: float
    right: bool | None


@dataclass(frozen=True)
class AnsweredImage:
    """An image as a data URI, its true class (empty where it has none), and what the models answered to it."""

    uri: str
    label: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class HardCase:
    """One of the hardest conditions: what every model makes of it, and an image without it and with it.

    `images` are some that were shown under it, with the answers, where the run has them.
    """

    condition: Any
    figures: tuple[tuple[str, Estimate], ...]
    before: str | None
    after: str | None
    images: tuple[AnsweredImage, ...] = ()


@dataclass(frozen=True)
class WorstCondition:
    """One of the worst conditions as the first screen names it: the lowest value that any model has there."""

    condition: str
    model: str
    metric: str
    estimate: Estimate


def worst_conditions(
    metric: str, cells: Iterable[tuple[object, Sequence[tuple[str, Estimate]]]]
) -> tuple[WorstCondition, ...]:
    """Of each condition, given with the values of all models, the lowest; one without a value is left out."""
    worst = []
    for condition, figures in cells:
        measured = [(model, cell) for model, cell in figures if not cell.missing]
        if measured:
            model, lowest = min(measured, key=lambda figure: figure[1].value)
            worst.append(WorstCondition(str(condition), model, metric, lowest))
    return tuple(worst)


@dataclass(frozen=True)
class Page:
    """What the protocol `name` shows of a run, or of one source of it.

    `draw` gives the charts by the id of their element (a terminal does not ask for them), `context` is what the
    template shows besides. `models` and `sentences` go to the summary (`brief` where other pages stand beside it),
    `details` (name, text) to the head of the report, `headline` to a terminal. `worst` are its worst conditions, the
    worst first, for the first screen. `links` are the labels of its sections
    by their anchor, which the template gives when it is rendered.
    """

    name: str
    title: str
    facts: Facts
    template: Path
    draw: Callable[[], drawing.Charts]
    context: Mapping[str, Any]
    models: Mapping[str, ModelWords] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()
    details: tuple[tuple[str, str], ...] = ()
    provenance: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    worst: tuple[WorstCondition, ...] = ()
    links: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def source(self) -> str | None:
        """The source that the page shows, where a run has several."""
        return self.facts.source

    @property
    def label(self) -> str:
        """The title, with the source."""
        return self.title if self.source is None else f"{self.title}, {self.source}"

    @cached_property
    def prefix(self) -> str:
        """What starts every id of the page: `ood-`, or `ood-1-` for the second source."""
        suffix = "" if self.source is None else f"-{self.facts.sources.index(self.source)}"
        return re.sub(r"\W+", "-", f"{self.name}{suffix}-")

    @cached_property
    def charts(self) -> drawing.Charts:
        """The charts by the id of their element, without the prefix."""
        return self.draw()

    @cached_property
    def parts(self) -> Mapping[str, Markup]:
        """The parts that the template defines, rendered; a part that it does not define is empty."""
        template = environment(self.template.parent).get_template(self.template.name)
        page_values = {"facts": self.facts, "charts": self.charts, "links": self.links, "prefix": self.prefix}
        module = template.make_module({**KIT, **words_for(self.name), **self.context, **page_values})
        return {part: Markup(pack_tables(getattr(module, part, str)())) for part in PARTS}


def plain_page(name: str, run: Path, facts: Facts, about: str) -> Page:
    """The page of a protocol that has none of its own: the table of its name, or the start of it."""
    table = read_arrow(run, name, facts.source)
    shown = {"columns": table.column_names, "rows": table.slice(0, PLAIN_ROWS).to_pylist(), "count": table.num_rows}
    return Page(
        name,
        name,
        facts,
        HERE / "plain.html.j2",
        dict,
        {**shown, "name": name, "about": about},
        sentences=(about,) if about else (),
        headline=(f"{name}: {words.plural(table.num_rows, 'row')} in tables/{name}.csv",),
    )


@cache
def environment(folder: Path = HERE) -> jinja2.Environment:
    """Where templates are found: in this folder, by the name of a folder beside it, then in that of the report."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, folder.parent, HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
