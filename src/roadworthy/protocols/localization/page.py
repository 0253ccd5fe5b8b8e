"""The page of localization in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.protocols.localization import figures, names, words
from roadworthy.protocols.localization.facts import PLAIN, LocalizationFacts, load_localization
from roadworthy.protocols.localization.metrics import METRICS
from roadworthy.protocols.localization.names import BOXES, CLASSES, NAME, TEST
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.report.reading import number_of
from roadworthy.report.words import plural, setting_text

TABLE_METRICS = {CLASSES: ("accuracy", "ece", "brier"), BOXES: ("iou", "box_ece_interval", "box_ece", "box_nll")}
"""The blocks of the tables by set."""
SEED_METRICS = {CLASSES: ("accuracy", "ece"), BOXES: ("iou", "mae")}
"""What is shown of several trainings."""


def page(run: Path, facts: Facts) -> Page:
    """The page of a run, or of one source of it."""
    test = load_localization(run, facts)
    return Page(
        NAME,
        "Localization",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(test),
        _context(test),
        models={_row_name(test, family): words.family_words(test, family) for family in test.families},
        sentences=tuple(words.overview(test)),
        headline=tuple(words.headline(test)),
        details=(
            ("Networks", f"{plural(len(test.families), 'network')}, {plural(len(test.methods), 'method')}"),
            ("Sets", f"{len(test.sets)}"),
        ),
        provenance={"Localization": [(name, setting_text(value)) for name, value in test.settings.items()]},
    )


def _context(test: LocalizationFacts) -> dict[str, Any]:
    """What the template shows besides the facts."""
    return {
        "test": test,
        "words": words,
        "names": names,
        "tasks": test.tasks,
        "plain": PLAIN,
        "id_metrics": figures.ID_METRICS,
        "shift_metrics": figures.SHIFT_METRICS,
        "table_metrics": {task: [m for m in TABLE_METRICS[task] if has_metric(test, m)] for task in test.tasks},
        "best_cells": best_cells(test),
        "method_labels": [words.method_label(method) for method in test.methods],
        "coordinate_labels": figures.COORDINATE_LABELS.values(),
        "detail_labels": [f"{family}, {image_set.label}" for family, image_set in test.detailed],
        "first_detail": max(range(len(test.detailed)), key=lambda index: _curve_count(test, index), default=0),
        "search_labels": [f"{model}, {task}" for model, task in test.searches],
        "seed_metrics": [(task, name) for task in test.tasks for name in SEED_METRICS[task]],
        "shown_metrics": [metric.name for metric in METRICS if has_metric(test, metric.name)],
        "number_of": number_of,
        "test_set": TEST,
        "examples": [own for own in test.sets if own.examples is not None],
        "any_hull": any(own.has_hulls for own in test.sets),
        "any_leaked": any(number_of(own.row.get("leaked")) > 0 for own in test.sets),
    }


def _curve_count(test: LocalizationFacts, index: int) -> int:
    """How many curves of its uncertainty a network has on a set that a reader can choose."""
    family, image_set = test.detailed[index]
    members = {network.name for network in test.networks if network.family == family}
    curves = (*test.reliability, *test.coordinates, *test.sparsification, *test.sizes)
    return sum(key[0] in members and key[1] == image_set.name for key in curves)


def _row_name(test: LocalizationFacts, family: str) -> str:
    """The model that stands for a network in the summary: the first that represents it in a task."""
    return next(own.name for task in test.tasks if (own := test.representative(family, task)) is not None)


def has_metric(test: LocalizationFacts, metric: str) -> bool:
    """Whether any model has a row of a metric."""
    return any(key[3] == metric for key in test.cells)


def best_cells(test: LocalizationFacts) -> frozenset[tuple[str, str, str]]:
    """The best (model, set, metric) of each network and set, where it has several methods."""
    best = set()
    for task in test.tasks:
        for family in test.compared_families:
            models = [network.name for network in test.of_family(family, task)]
            for metric in TABLE_METRICS[task]:
                for image_set in test.sets_of(task):
                    model = test.best_model(models, image_set.name, metric)
                    if model is not None:
                        best.add((model, image_set.name, metric))
    return frozenset(best)
