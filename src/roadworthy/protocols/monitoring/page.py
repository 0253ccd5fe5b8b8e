"""The page of the benchmark of monitors in the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roadworthy.protocols.answered_pictures import answered_images
from roadworthy.protocols.monitoring import figures, metrics, names, words
from roadworthy.protocols.monitoring.facts import FEWEST_SETS, Benchmark, MonitoringFacts, load_monitoring
from roadworthy.protocols.monitoring.names import NAME, TEST, TRAIN, VALID
from roadworthy.protocols.monitoring.rank_figure import ranking_label
from roadworthy.report.facts import Facts, estimate_of
from roadworthy.report.page import AnsweredImage, Page
from roadworthy.report.reading import Picture, number_of
from roadworthy.report.words import plural, setting_text

LESS_USED = ("f1_micro", "balanced_accuracy")
TABLE_METRICS = (
    *(metric for metric in metrics.DECISION_METRICS if metric.name not in LESS_USED),
    *metrics.EFFECT_METRICS,
    *metrics.STREAM_METRICS,
    metrics.AUROC,
)
"""The columns of the tables by benchmark, where a view has them."""
FEW_TABLES = 4
"""Up to so many benchmarks have their tables unfolded."""
PARTS = (TRAIN, VALID, TEST)


def page(run: Path, facts: Facts) -> Page:
    """The page of a run, or of one source of it."""
    test = load_monitoring(run, facts)
    failed = {monitor for _, monitor, *_ in test.missing}
    trouble = f", {len(failed)} of them without a decision somewhere" if failed else ""
    return Page(
        NAME,
        "Monitors",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(test),
        _context(test),
        models={model: words.model_words(test, model) for model in test.models},
        sentences=tuple(words.overview(test)),
        headline=tuple(words.headline(test)),
        details=(
            ("Benchmarks", f"{len(test.benchmarks)} of {plural(len(test.kinds), 'kind')}"),
            ("Monitors", f"{len(test.monitors)}{trouble}"),
        ),
        provenance={"Monitors": [(name, setting_text(value)) for name, value in test.settings.items()]},
    )


def _context(test: MonitoringFacts) -> dict[str, Any]:
    """What the template shows besides the facts."""
    return {
        "test": test,
        "words": words,
        "names": names,
        "measured_by": metrics,
        "table_metrics": {
            view: [metric for metric in TABLE_METRICS if test.has_metric(view, metric.name)] for view in test.views
        },
        "best_values": best_values(test),
        "model_views": figures.model_views(test),
        "timed_models": figures.timed_models(test),
        "is_timed": figures.is_timed,
        "table_rows": {
            view: [*([names.ALONE] if _has_alone(test, view) else []), *test.monitors] for view in test.views
        },
        "matrix_labels": [words.view_label(view) for view in test.views],
        "view_labels": [view_choice(test, model, view) for model, view in figures.model_views(test)],
        "swept_labels": ["mean of all" if name == names.ALL else name for name in figures.swept_sets(test)],
        "ranking_labels": [ranking_label(ranking) for ranking in test.rankings],
        "stream_labels": [stream_choice(test, *key) for key in test.timelines],
        "threshold_rows": [row | {"measured": estimate_of(row)} for row in test.thresholds],
        "by_class": any(row["class"] for row in test.thresholds),
        "few_tables": FEW_TABLES,
        "perfect_shown": any(not words.perfect_on_id(test, model).missing for model in test.models),
        "first_view": test.views.index(names.SYSTEM) if names.SYSTEM in test.views else 0,
        "left_out": words.left_out(test),
        "examples": [*_examples(test)],
        "competence_parts": [p for p in PARTS if any(part == p for _, part, _ in test.competence)],
        "shown_metrics": {metric for *_, metric in (*test.cells, *test.on_id, *test.stream, *test.competence)},
        "number_of": number_of,
        "fewest_sets": FEWEST_SETS,
    }


def _examples(test: MonitoringFacts) -> Iterator[tuple[str, str, Picture, tuple[AnsweredImage, ...]]]:
    """The pictures of the ID side and of every OOD side: whose they are, of which kind, the strip and its answers.

    Benchmarks that show the same images share a strip, which is shown once.
    """
    if test.id_examples is not None:
        answered = answered_images(test.id_examples, test.id_answers)
        yield "ID side", "test data of the source", test.id_examples, answered
    shared: dict[Path, list[Benchmark]] = {}
    for benchmark in test.benchmarks:
        if benchmark.examples is not None:
            shared.setdefault(benchmark.examples.path, []).append(benchmark)
    for benchmarks in shared.values():
        picture, answers = benchmarks[0].examples, benchmarks[0].answers
        assert picture is not None
        kinds = dict.fromkeys(words.KIND_LABELS[benchmark.kind] for benchmark in benchmarks)
        title = ", ".join(benchmark.name for benchmark in benchmarks)
        yield title, ", ".join(kinds), picture, answered_images(picture, answers)


def _has_alone(test: MonitoringFacts, view: str) -> bool:
    """Whether a view has values of the model alone."""
    return any(key[2:4] == (names.ALONE, view) for key in test.cells)


def view_choice(test: MonitoringFacts, model: str, view: str) -> str:
    """What a reader chooses: the view, of a model where there are several."""
    return f"{model}, {words.view_label(view)}" if len(test.models) > 1 else words.view_label(view)


def stream_choice(test: MonitoringFacts, model: str, benchmark: str) -> str:
    """What a reader chooses: the benchmark, of a model where there are several."""
    return f"{model}, {benchmark}" if len(test.models) > 1 else benchmark


def best_values(test: MonitoringFacts) -> dict[tuple[str, str, str, str], float]:
    """The best value of any monitor by (model, benchmark, view, metric), where one direction is better."""
    directions = {metric.name: metric.higher_is_better for metric in TABLE_METRICS}
    best: dict[tuple[str, str, str, str], float] = {}
    for (model, benchmark, monitor, view, metric), cell in test.cells.items():
        higher = directions.get(metric)
        if higher is None or cell.missing or monitor == names.ALONE:
            continue
        key = (model, benchmark, view, metric)
        best[key] = (max if higher else min)(cell.value, best.get(key, cell.value))
    return best
