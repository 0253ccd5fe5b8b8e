"""Dependability in the report: the eight metrics of a run as facts and in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roadworthy.core.tables import TableSpec
from roadworthy.protocols.dependability.paper import PAPER
from roadworthy.protocols.dependability.table_specs import FIGURES, NAME, TABLE_SPECS, short_name
from roadworthy.report.facts import NOT_RUN, Facts, estimate_of, metrics_without_value
from roadworthy.report.page import ModelWords
from roadworthy.report.reading import Picture, Row, has_table, media_path, number_of, read_rows
from roadworthy.report.words import bounds, listing, number, p_value, plural, words_of
from roadworthy.statistics import Estimate

ALL, DATA = "all", "data"
TRAIN, TEST = "train", "test"
DATA_WORDS = {TRAIN: "training data", TEST: "test data"}
ALPHA = 0.05
"""A slice whose corrected p is below this is called worse than elsewhere."""
TEXTS = ("reason", "covering_reason", "prediction")
OVERVIEW = (
    ("scenario_coverage", "1", "Which combinations of operating conditions the data shows."),
    (
        "neuron_activation",
        "2",
        "Which on-off combinations of neurons the data has used. Never a safety claim.",
    ),
    ("neuron_pattern", "3", "Whether images of one scenario excite the layer alike."),
    ("confidence_loss", "4", "What the worst of the shifts and attacks takes from the true class."),
    ("accuracy_discounted", "5", "Accuracy, with what was not shown counted as failed."),
    ("domain_share", "5", "Share of the situations in the field in which the threshold is met."),
    ("time_between_failures", "5", "Mean time or distance between failures."),
    ("interpretation_precision", "6", "Whether the answer rests on the object or on its surroundings."),
    ("interpretation_chance", "6", "What blindly drawn cells would give: a precision near it says nothing."),
    (
        "interpretation_masked",
        "6",
        "A control: at chance where the class is lost with its object.",
    ),
    ("interpretation_place", "6", "A control: above chance, what counts is the place, whatever stands there."),
    ("occlusion_covering", "7", "How much of the object a small patch may hide to lose it."),
    ("weighted_confusion", "8", "What the mistakes cost, as a share of the worst possible."),
)
"""Metric, its number in the paper, and what it means."""
WAYS = {True: "higher", False: "lower", None: ""}
"""Which way is better, in a word; empty where neither is."""
FigureId = tuple[str, str, str, str]
"""Model, scope, metric and data of a figure."""


@dataclass(frozen=True)
class Overview:
    """One line of the overview: a metric with a value per model (or one for the data)."""

    metric: str
    number: str
    better: str
    meaning: str
    where: str
    cells: tuple[Estimate, ...]
    of_data: bool


@dataclass(frozen=True)
class Dependability:
    """All that the report shows of dependability: figures by model, scope, metric and data, and the rows behind them.

    inferred   whether the conditions and their values are only those that the data shows: no study declares them
    """

    models: tuple[str, ...]
    figures: Mapping[FigureId, Estimate]
    rows: Mapping[str, list[Row]]
    run: Path
    inferred: bool = False

    def cell(self, model: str, metric: str, scope: str = ALL, data: str = TEST) -> Estimate:
        """A figure of the run; one that is not part of it is missing, and says so."""
        return self.figures.get((model, scope, metric, data), NOT_RUN)

    def scopes(self, metric: str, model: str | None = None) -> tuple[str, ...]:
        """The scopes of a metric, in the order of the table."""
        scopes = [s for m, s, name, _ in self.figures if name == metric and model in (None, m)]
        return tuple(dict.fromkeys(scopes))

    @cached_property
    def counted_data(self) -> tuple[str, ...]:
        """The data that coverage and neuron k-activation were counted on, the training data first."""
        return tuple(data for data in (TRAIN, TEST) if (DATA, ALL, "scenario_coverage", data) in self.figures)

    def on(self, name: str, data: str) -> list[Row]:
        """The rows of one of the other tables that speak of training or of test data."""
        return [row for row in self.rows[name] if row["data"] == data]

    def of(self, name: str, model: str) -> list[Row]:
        """The rows of one of the other tables that belong to a model."""
        return [row for row in self.rows[name] if row["model"] == model]

    def picture(self, row: Row) -> Picture:
        """The stored picture of a row."""
        return Picture(media_path(self.run, row["media"]))

    @cached_property
    def activations(self) -> tuple[str, ...]:
        """The metrics of neuron k-activation, by k."""
        metrics = {metric for _, _, metric, _ in self.figures if metric.startswith("neuron_activation_")}
        return tuple(sorted(metrics, key=lambda metric: int(metric.rpartition("_")[2])))

    @cached_property
    def layers(self) -> tuple[Row, ...]:
        """A row per model, layer and data: how many neurons it has, never on and always on."""
        return tuple({(row["model"], row["layer"], row["data"]): row for row in self.rows["neurons"]}.values())

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The metrics taken per scenario."""
        return tuple(dict.fromkeys(row["metric"] for row in self.rows["scenarios"]))

    @cached_property
    def conditions(self) -> dict[str, list[str]]:
        """Operating conditions with their values, from the table of cells."""
        values: dict[str, dict[str, None]] = {}
        columns = sorted(name for row in self.rows["cells"][:1] for name in row if name.startswith("condition_"))
        for row in self.rows["cells"]:
            for column in columns:
                values.setdefault(row[column], {})[row[column.replace("condition", "value")]] = None
        return {name: list(own) for name, own in values.items()}

    @property
    def of_pairs(self) -> bool:
        """Coverage is counted over pairs of conditions, which one picture can show."""
        columns = self.rows["cells"][0] if self.rows["cells"] else {}
        return "condition_2" in columns and "condition_3" not in columns


def load_dependability(path: str | Path, facts: Facts) -> Dependability:
    """Read the tables of dependability."""
    run = Path(path)
    rows = {short_name(spec): _stored_rows(run, spec, facts) for spec in TABLE_SPECS}
    figures = rows.pop(short_name(FIGURES))
    return Dependability(
        models=facts.models,
        figures={(r["model"], r["scope"], r["metric"], r["data"]): estimate_of(r) for r in figures},
        rows={name: [_with_nan(row) for row in table] for name, table in rows.items()},
        run=run,
        inferred=facts.record.protocols[NAME].settings.get("conditions") is None and bool(rows["cells"]),
    )


def _stored_rows(run: Path, spec: TableSpec, facts: Facts) -> list[Row]:
    """The rows of a table; of a run of an earlier version, with what its columns of today would hold.

    Such a run lacks tables that were added since, and its rows are of the test data.
    """
    if not has_table(run, spec.name):
        return []
    lacking = {name: TEST if name == "data" else None for name in spec.added_later}
    return [lacking | row for row in read_rows(run, spec.name, facts.source)]


def _with_nan(row: Row) -> Row:
    """The row with NaN in place of every number that is missing."""
    return {name: math.nan if value is None and name not in TEXTS else value for name, value in row.items()}


def overview(dependability: Dependability) -> list[Overview]:
    """The eight metrics at a glance, what is counted on training data before the same of the test data.

    Of neurons the pairs (else the largest tuples), of patterns each full scenario (in runs of earlier versions the
    worst value of a condition); of several layers the worst.
    """
    lines = []
    for metric, paper_number, meaning in OVERVIEW:
        name, of_data = metric, metric == "scenario_coverage"
        if metric == "neuron_activation" and (activations := dependability.activations):
            name = "neuron_activation_2" if "neuron_activation_2" in activations else activations[-1]
        scopes = dependability.scopes(name)
        if metric == "neuron_pattern":
            scopes = tuple(scope for scope in scopes if scope.endswith(", each scenario")) or scopes
        for data in dependability.counted_data if of_data or metric == "neuron_activation" else (TEST,):
            where = [DATA_WORDS[data]] if of_data or metric == "neuron_activation" else []
            if metric == "neuron_pattern":
                where = ["images of each full scenario" if scopes[0].endswith(", each scenario") else "worst scenario"]
            elif name.startswith("neuron_") and len(scopes) > 1:
                where.append("lowest layer")
            if of_data:
                cells = [dependability.cell(DATA, name, data=data)]
            elif name.startswith("neuron_"):
                higher = name != "neuron_pattern"
                cells = [_worst(dependability, model, name, scopes, data, higher) for model in dependability.models]
            else:
                cells = [dependability.cell(model, name) for model in dependability.models]
            if of_data or scopes:
                better = WAYS[words_of(name).higher_is_better]
                lines.append(Overview(name, paper_number, better, meaning, ", ".join(where), tuple(cells), of_data))
    return lines


def _worst(
    dependability: Dependability, model: str, metric: str, scopes: Sequence[str], data: str, higher: bool
) -> Estimate:
    own = set(dependability.scopes(metric, model))
    cells = [dependability.cell(model, metric, scope, data) for scope in scopes if scope in own]
    known = [cell for cell in cells if not cell.missing]
    if not known:
        return cells[0] if cells else NOT_RUN
    return min(known, key=lambda cell: cell.value if higher else -cell.value)


def paper_words(*numbers: int) -> str:
    """The attributes of metrics, by their number, and how to improve them, after the paper."""
    chosen = [metric for metric in PAPER if metric.number in numbers]
    if len(chosen) == 1:
        return chosen[0].sentence
    return " ".join(f"{metric.number}, {metric.title}: {metric.sentence}" for metric in chosen)


def slice_words(dependability: Dependability, model: str) -> str:
    """A sentence on the worst slice that is worse than chance explains, or that says there is none."""
    rows = dependability.of("slices", model)
    significant = [row for row in rows if number_of(row["p_holm"]) < ALPHA]
    slices = plural(rows[0]["looked_at"], "slice") if rows else ""
    if not significant:
        return f"No slice is worse than elsewhere beyond chance ({slices} looked at)." if rows else ""
    row = significant[0]
    metric = row["metric"]
    return (
        f"Worst slice: {row['scenario']}, {metric} {number(metric, row['value'])} "
        f"({bounds(metric, row['lo'], row['hi'])}) against {number(metric, row['elsewhere'])} elsewhere, corrected p "
        f"{p_value(row['p_holm'])}."
    )


def sentences(dependability: Dependability, model: str) -> Iterator[str]:
    """What the first screen says of one model."""
    loss = dependability.cell(model, "confidence_loss")
    if not loss.missing:
        wins = sorted(dependability.of("transformers", model), key=lambda row: -row["wins"])
        yield (
            f"The worst of the shifts and attacks changes the probability of the true class by "
            f"{number('confidence_loss', loss.value)} on average ({bounds('confidence_loss', loss.lo, loss.hi)}; more "
            f"is better); {wins[0]['transformer']} hurts most images."
        )
    if words := slice_words(dependability, model):
        yield words
    precision = dependability.cell(model, "interpretation_precision")
    covering = dependability.cell(model, "occlusion_covering")
    if not precision.missing and not covering.missing:
        chance = dependability.cell(model, "interpretation_chance")
        masked = dependability.cell(model, "interpretation_masked")
        beside = "" if chance.missing else f"; by chance {number('interpretation_chance', chance.value)}"
        beside += "" if masked.missing else f", without the object {number('interpretation_masked', masked.value)}"
        place = dependability.cell(model, "interpretation_place")
        beside += "" if place.missing else f", by its place alone {number('interpretation_place', place.value)}"
        yield (
            f"Heat maps: {number('interpretation_precision', precision.value)} of the hot cells lie on the object "
            f"(higher is better{beside}); a patch loses it in {number('occlusion_covering', covering.value)} of the "
            "places (lower is better)."
        )
    model_index = dependability.models.index(model)
    lines = [line for line in overview(dependability) if line.better and not line.of_data]
    missing = [*dict.fromkeys(line.metric for line in lines if line.cells[model_index].missing)]
    if missing:
        yield f"Not measured: {listing(missing)}; see below why."


def model_words(dependability: Dependability, model: str) -> ModelWords:
    """What the summary says of one model."""
    model_sentences = tuple(sentences(dependability, model))
    metric = dependability.metrics[0] if dependability.metrics else "accuracy"
    return ModelWords(
        figures=(
            (f"{metric.capitalize()} undisturbed", metric, dependability.cell(model, metric)),
            ("Confidence loss (higher is better)", "confidence_loss", dependability.cell(model, "confidence_loss")),
        ),
        sentences=model_sentences,
        brief=model_sentences[:2],
    )


def without_value(dependability: Dependability, facts: Facts) -> list[str]:
    """A sentence on the metrics that the study names and that have no value anywhere."""
    named = facts.record.protocols[NAME].settings.get("metrics") or ()
    cells = ((metric, scope, cell) for (_, scope, metric, _), cell in dependability.figures.items())
    return metrics_without_value(entry for entry in cells if entry[0] in named)


def confusion_pictures(dependability: Dependability, model: str) -> list[tuple[Row, Sequence[Row]]]:
    """The most expensive confusions of a model, each with its pictures."""
    shown = dependability.of("confusion_gallery", model)
    return [
        (row, [p for p in shown if (p["label"], p["prediction"]) == (row["label"], row["prediction"])])
        for row in dependability.of("confusions", model)[:10]
    ]


def most_sensitive(parts: Sequence[Row]) -> list[Row]:
    """The mean heat maps of a model: that of all first, then classes by how often their part is hot."""
    return sorted(parts, key=lambda row: (row["scope"] != ALL, -number_of(row["hot"])))
