"""Outliers in the report: how well each model tells them from the images it knows, as facts and in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from roadworthy.core.grouping import grouped
from roadworthy.metrics.ranking import TIED
from roadworthy.protocols.answered_pictures import answered_images, read_answers
from roadworthy.protocols.ood import table_specs
from roadworthy.protocols.ood.gan_facts import Gans, load_gans
from roadworthy.protocols.ood.table_specs import KIND_WORDS, NAME, set_words
from roadworthy.report.facts import NOT_RUN, WORST, Facts, bounded, defined, estimate_of, mean_of
from roadworthy.report.page import AnsweredImage, HardCase, ModelWords
from roadworthy.report.reading import Picture, Row, media_path, number_of, read_rows, strip_of_squares
from roadworthy.report.words import listing, number, plural, whole
from roadworthy.statistics import Estimate

ROLE = "auroc"
GUESSING = 0.5
"""The AUROC of a score that knows nothing."""
ALL = "all"
KINDS = {
    "literature": "Noise and foreign images",
    "derived": "Made from the test images",
    "transformed": "Foreign images, both sides under one shift",
    "gan": "Drawn by a generator",
    ALL: "All sets",
}
SCORES = {
    "confidence": "the largest class probability",
    "log_odds": "the largest class probability, ordered by its log-odds from logits",
    "certainty": "the certainty that the model itself states",
}


@dataclass(frozen=True)
class OutlierSet:
    """One set of outliers."""

    name: str
    kind: str
    about: str = ""
    """What it shows, where the name alone does not say it."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ScoreBin:
    """How many images of either side have a score between two values."""

    start: float
    end: float
    inside: int
    outside: int


@dataclass(frozen=True)
class Pictures:
    """Examples of a set, and of the in-distribution images it is mixed with; with answers where the run stores them."""

    outside: Picture
    inside: Picture
    answers: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    def answered(self, side: str) -> tuple[AnsweredImage, ...]:
        """The images of a side, `in` or `out`, with what the models answered; nothing where no answer is stored."""
        return answered_images(self.inside if side == "in" else self.outside, self.answers.get(side, ()))


@dataclass(frozen=True)
class KindMean:
    """The mean of a metric over the sets of one kind."""

    sets: int
    value: float


@dataclass(frozen=True)
class Outliers:
    """All that the report shows of outliers. Kinds of sets go from easy to hard, sets of a kind from hard to easy."""

    models: tuple[str, ...]
    sets: tuple[OutlierSet, ...]
    metrics: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Estimate]
    means: Mapping[tuple[str, str, str], KindMean]
    scores: Mapping[str, str]
    histograms: Mapping[tuple[str, str], tuple[ScoreBin, ...]]
    gallery: Mapping[str, Pictures]
    ranked: tuple[str, ...]
    repeats: int
    gans: Gans | None = None
    counts_gans: bool = False
    """Whether bounds of what GANs draw count GANs; those of runs before did not."""

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the run's sets, in order."""
        return tuple(dict.fromkeys(outlier_set.kind for outlier_set in self.sets))

    def of_kind(self, kind: str) -> tuple[OutlierSet, ...]:
        """The sets of one kind."""
        return tuple(outlier_set for outlier_set in self.sets if outlier_set.kind == kind)

    def cell(self, model: str, name: str, metric: str = ROLE) -> Estimate:
        """A value of the run; one that is not part of it is missing, and says so."""
        return self.cells.get((model, name, metric), NOT_RUN)

    def mean(self, model: str, kind: str, metric: str = ROLE) -> KindMean:
        """The mean over a kind of sets."""
        return self.means.get((model, kind, metric), KindMean(0, math.nan))

    def hardest(self, models: Sequence[str], count: int = WORST) -> tuple[OutlierSet, ...]:
        """The sets with the lowest AUROC that any of the models has, lowest first."""
        values = {s: defined(self.cell(model, s.name).value for model in models) for s in self.sets}
        measured = [outlier_set for outlier_set in self.sets if values[outlier_set]]
        return tuple(sorted(measured, key=lambda outlier_set: min(values[outlier_set]))[:count])


def load_outliers(path: str | Path, facts: Facts) -> Outliers:
    """Read the tables and pictures of outliers."""
    run = Path(path)
    rows = read_rows(run, table_specs.SETS.name, facts.source)
    cells = {(row["model"], row["ood_set"], row["metric"]): estimate_of(row) for row in rows}
    sets = {row["ood_set"]: OutlierSet(row["ood_set"], row["kind"], set_words(row)) for row in rows}

    def difficulty(outlier_set: OutlierSet) -> tuple[int, float, str]:
        keys = [(model, outlier_set.name, ROLE) for model in facts.ranked]
        mean = mean_of((cells[key].value for key in keys if key in cells), -math.inf)
        return [*KINDS, outlier_set.kind].index(outlier_set.kind), mean, outlier_set.name

    ordered = tuple(sorted(sets.values(), key=difficulty))
    return Outliers(
        models=facts.models,
        sets=ordered,
        metrics=tuple(dict.fromkeys(row["metric"] for row in rows)),
        cells=cells,
        means={
            (row["model"], row["kind"], row["metric"]): KindMean(row["sets"], number_of(row["value"]))
            for row in read_rows(run, table_specs.BY_KIND.name, facts.source)
        },
        scores={row["model"]: row["score"] for row in rows if row["score"]},
        histograms=grouped(
            ((row["model"], row["ood_set"]), ScoreBin(row["from"], row["to"], row["in"], row["out"]))
            for row in read_rows(run, table_specs.SCORES.name, facts.source)
        ),
        gallery=_gallery(run, facts.source),
        ranked=facts.ranked,
        repeats=1 + max((c.stimulus.repeat for name, _, _, c in facts.record.asked() if name == NAME), default=0),
        gans=load_gans(run, [outlier_set.name for outlier_set in ordered], facts.source),
        counts_gans=any("unit" in row for row in rows),
    )


def _gallery(run: Path, source: str | None) -> dict[str, Pictures]:
    """The pictures of every set, with the answers to their images where they are stored."""
    stored = read_answers(run, table_specs.GALLERY_ANSWERS, source)
    answers = grouped(((row["ood_set"], row["side"]), row) for row in stored)
    gallery = {}
    for row in read_rows(run, table_specs.GALLERY.name, source):
        outside, inside = (strip_of_squares(media_path(run, row[column])) for column in ("media", "media_in"))
        own = {side: answers.get((row["ood_set"], side), ()) for side in ("in", "out")}
        gallery[row["ood_set"]] = Pictures(outside, inside, own)
    return gallery


def sentences(outliers: Outliers, model: str) -> Iterator[str]:
    """What the first screen says of one model: its hardest outliers, where it is misled, and the mean over all sets."""
    for hardest in outliers.hardest([model], 1):
        yield f"The hardest outliers: {hardest.name}, AUROC {bounded(ROLE, outliers.cell(model, hardest.name))}."
    yield from misled(outliers, model)
    total = outliers.mean(model, ALL)
    if not math.isnan(total.value):
        parts = [(kind, outliers.mean(model, kind)) for kind in outliers.kinds]
        measured = [(KIND_WORDS.get(kind, kind), mean.value) for kind, mean in parts if not math.isnan(mean.value)]
        of_kinds = [f"{kind} {number(ROLE, value)}" for kind, value in measured]
        kinds = f": {listing(of_kinds)}" if len(of_kinds) > 1 else ""
        yield f"Mean AUROC over {plural(total.sets, 'set')} of outliers {number(ROLE, total.value)}{kinds}."
    missing = [outlier_set.name for outlier_set in outliers.sets if outliers.cell(model, outlier_set.name).missing]
    if missing:
        yield f"Outliers not measured: {listing(missing)}."


def misled(outliers: Outliers, model: str) -> Iterator[str]:
    """Sentences on the sets where the score does not help, or points the wrong way."""
    hardest_first = outliers.hardest([model], len(outliers.sets))
    cells = {outlier_set.name: outliers.cell(model, outlier_set.name) for outlier_set in hardest_first}
    below = [name for name, cell in cells.items() if cell.value < GUESSING]
    sure = [name for name in below if cells[name].hi < GUESSING]
    unbounded = [name for name in below if cells[name].unbounded]
    unsure = [name for name in below if name not in (*sure, *unbounded)]
    if sure:
        yield (
            f"On {listing(sure)} AUROC is below 0.5, bounds and all: it is surer of these outliers than of the images "
            "it knows."
        )
    if unsure:
        yield (
            f"On {listing(unsure)} AUROC is below 0.5, which its bounds do not rule out as chance: it is no less sure "
            "of these outliers than of the images it knows."
        )
    if unbounded:
        reasons = dict.fromkeys(cells[name].reason or "no bound" for name in unbounded)
        yield f"On {listing(unbounded)} AUROC is below 0.5, without bounds ({'; '.join(reasons)})."
    yield from _misled_by_single_gans(outliers, model)


def _misled_by_single_gans(outliers: Outliers, model: str) -> Iterator[str]:
    """The GANs whose own images mislead the model beyond chance: counterexamples, whatever other GANs do."""
    gans = outliers.gans
    cells = [(gan, gans.cell(model, gan)) for gan in gans.gans] if gans is not None else []
    misleading = [f"{gan.name} of {gan.configuration}" for gan, cell in cells if cell.hi < GUESSING]
    if misleading:
        yield (
            f"It is surer of what {listing(misleading)} drew than of the images it knows: AUROC on these images is "
            "below 0.5, bounds and all. What the next GAN would draw is another question."
        )


def brief(outliers: Outliers, model: str) -> tuple[str, ...]:
    """What `sentences` says, in one line."""
    hardest, total = outliers.hardest([model], 1), outliers.mean(model, ALL)
    if not hardest:
        return ("No set of outliers was measured.",)
    cell = outliers.cell(model, hardest[0].name)
    below = cell.value < GUESSING
    wrong = ": it is surer of these outliers than of the images it knows" if below and cell.hi < GUESSING else ""
    wrong = wrong or (": no better than guessing" if below else "")
    words = f"The hardest outliers: {hardest[0].name}, AUROC {bounded(ROLE, cell)}{wrong}"
    return (f"{words}; mean of {plural(total.sets, 'set')} {number(ROLE, total.value)}.",)


def model_words(outliers: Outliers, model: str) -> ModelWords:
    """What the summary says of one model."""
    total = outliers.mean(model, ALL)
    mean = Estimate(total.value, reason="no set was measured" if math.isnan(total.value) else "")
    hardest = [outliers.cell(model, outlier_set.name) for outlier_set in outliers.hardest([model], 1)]
    lowest = hardest[0] if hardest else Estimate(math.nan, reason="no set was measured")
    return ModelWords(
        figures=(("AUROC, mean of all sets", ROLE, mean), ("AUROC, hardest set", ROLE, lowest)),
        sentences=tuple(sentences(outliers, model)),
        brief=brief(outliers, model),
        rule="Outliers: in-distribution is the positive class; AUROC 1 is perfect, 0.5 is guessing.",
    )


def score_name(score: str) -> str:
    """The score that a table names: the model's own, or that of a monitor."""
    return SCORES.get(score, f"that of the monitor {score}")


def score_words(outliers: Outliers) -> str:
    """Which score separates the two sides, model by model where they differ.

    A certainty of its own is used where a model gives one, else its largest class probability.
    """
    by_score = grouped((outliers.scores[model], model) for model in outliers.models if model in outliers.scores)
    if len(by_score) == 1:
        (score,) = by_score
        return f"The score is {score_name(score)}.{_ties(outliers)}"
    parts = [f"for {listing(models)} {score_name(score)}" for score, models in by_score.items()]
    return f"The score is {'; '.join(parts)}.{_ties(outliers)}" if parts else ""


def _ties(outliers: Outliers) -> str:
    """That scores of both sides are equal, where a table says how many; a sentence after another one."""
    tied = [m for m in outliers.models if any(TIED in outliers.cell(m, own.name).reason for own in outliers.sets)]
    if not tied:
        return ""
    return (
        f" Of {listing(tied)} some images of both sides have equal scores: such pairs are in no order and count half, "
        "and the column `reason` of the table says how many there are."
    )


def hard_sets(outliers: Outliers) -> list[HardCase]:
    """The hardest sets over all models that rank, with pictures where the run has them."""
    cards = []
    for outlier_set in outliers.hardest(outliers.ranked):
        figures = tuple((model, outliers.cell(model, outlier_set.name)) for model in outliers.models)
        pictures = outliers.gallery.get(outlier_set.name)
        sides = (pictures.inside, pictures.outside) if pictures else (None, None)
        before, after = (side.tile(side.clearest) if side else None for side in sides)
        cards.append(HardCase(outlier_set, figures, before, after))
    return cards


def headline(outliers: Outliers, facts: Facts) -> list[str]:
    """Two lines for a terminal: the mean over all sets, and the hardest one."""
    means = []
    for model in outliers.models:
        total = outliers.mean(model, ALL)
        means.append(f"{facts.named(model)} mean AUROC {number(ROLE, total.value)} over {plural(total.sets, 'set')}")
    words = "none was measured"
    for hardest in outliers.hardest(outliers.ranked, 1):
        figures = [f"{facts.named(m)} AUROC {bounded(ROLE, outliers.cell(m, hardest.name))}" for m in outliers.models]
        words = f"{hardest.name}: {', '.join(figures)}"
    return [f"Outliers: {'; '.join(means)}", f"Hardest outliers: {words}"]


def sizes(outliers: Outliers) -> str:
    """How many images of either side the figures of a set are of: one number where all sets have as many, else a range.

    The table counts both sides together; scores, of all repeats, say which share of them is inside.
    """
    sides = []
    for key, bins in outliers.histograms.items():
        inside, outside = sum(own.inside for own in bins), sum(own.outside for own in bins)
        images = outliers.cell(*key).n
        shown = round(images * inside / (inside + outside)) if images else 0
        sides.append((shown, images - shown))
    if not sides:
        return "no images"
    ranges = [sorted({min(counts), max(counts)}) for counts in zip(*sides, strict=True)]
    inside_words, outside_words = (" to ".join(map(whole, ends)) for ends in ranges)
    return f"{inside_words} in-distribution images and {outside_words} outliers"
