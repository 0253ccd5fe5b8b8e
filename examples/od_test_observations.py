"""Hold an OD-test run against the ten observations of the paper (section 5 of Shafaei et al. 2018), one by one.

python examples/od_test_observations.py runs/od-test-full-small

Every comparison is paired: the difference of two monitors on the same source, model, D_v and D_t. Its 95 % interval is
Student's t over pairs of source and D_t, as in the tables of a run. Rows of networks below their floor are left
out; the last columns have the same with all of them. A difference is said to hold where its interval leaves out 0.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from od_test_tables import RESNET, VGG, kind_of, markdown, percent

import roadworthy as rw
from roadworthy.protocols.od_test.means import clustered_interval

KEY = ["source", "model", "valid_set", "test_set"]
LATENT = ("bnn_svm", "mnn_svm", "vnn_svm")
NEIGHBOURS = (1, 2, 4, 8)
SMALL_IMAGES = ("mnist", "fashionmnist")
"""Sources of 28x28 grey pixels, which the paper calls low-dimensional."""
NEAR_PERFECT, CHANCE = 0.95, 0.5
YES, NO, OPEN = "yes", "no", "cannot be told"


@dataclass(frozen=True)
class Mean:
    """A mean over triples with its 95 % interval over clusters; NaN where there are too few."""

    value: float
    lo: float
    hi: float
    triples: int
    clusters: int

    def share(self) -> str:
        """As a percentage with its bounds."""
        return f"{percent(self.value)} ({percent(self.lo)} to {percent(self.hi)})"

    def points(self) -> str:
        """As a difference in percentage points with its bounds."""
        if math.isnan(self.value):
            return "no such rows"
        ends = "no bounds" if math.isnan(self.lo) else f"{100 * self.lo:+.1f} to {100 * self.hi:+.1f}"
        return f"{100 * self.value:+.1f} ({ends})"

    def is_above(self) -> str:
        """Whether the mean is above 0: yes, no, or it cannot be told."""
        return YES if self.lo > 0 else NO if self.hi < 0 else OPEN


def mean_over(values: Sequence[float], clusters: Iterable[object]) -> Mean:
    """The mean of values (n,) whose clusters are independent: Student's t over the means of clusters, by their size.

    >>> mean_over([0.1, 0.3, 0.2, 0.2], ["a", "a", "b", "b"]).points()
    '+20.0 (+20.0 to +20.0)'
    """
    known = pd.DataFrame({"value": np.asarray(values, float), "cluster": [str(name) for name in clusters]}).dropna()
    if known.empty:
        return Mean(math.nan, math.nan, math.nan, 0, 0)
    numbers, names = pd.factorize(known["cluster"])
    lo, hi, _ = clustered_interval(known["value"].to_numpy(), numbers, (-math.inf, math.inf), 0.95)
    return Mean(float(known["value"].mean()), lo, hi, len(known), len(names))


def is_weakly_fitted(run: rw.Run, rows: pd.DataFrame) -> pd.Series:
    """Whether a row is of a monitor with a network of its own below its floor: on this model, or for this D_v."""
    weak = run.tables["od_test_networks"].query("undertrained and monitors != ''")
    fits = {
        (row["source"], row["model"], monitor, row["fitted_on"])
        for row in weak.to_dict("records")
        for monitor in row["monitors"].split(", ")
    }

    def is_weak(row: pd.Series) -> bool:
        models, sets = ("all", row["model"]), ("", row["valid_set"])
        return any((row["source"], model, row["monitor"], name) in fits for model in models for name in sets)

    return rows.apply(is_weak, axis=1).astype(bool)


class Field:
    """The accuracies of a run, a column per monitor and a row per source, model, D_v and D_t."""

    def __init__(self, run: rw.Run, *, everything: bool) -> None:
        table = run.tables["od_test"].query("metric == 'accuracy'")
        if not everything:
            table = table[~table["undertrained"] & ~is_weakly_fitted(run, table)]
        self.run = run
        self.sources = list(dict.fromkeys(run.tables["od_test"]["source"]))
        self.wide = table.pivot_table(index=KEY, columns="monitor", values="value", aggfunc="first")
        kinds = table.drop_duplicates(["source", "model"]).set_index(["source", "model"])["architecture"]
        self.kinds = {key: kind_of(str(value)) for key, value in kinds.items()}
        for monitor in set(run.tables["od_test"]["monitor"]) - set(self.wide):
            self.wide[monitor] = math.nan

    def rows(self, kind: str = "", sources: Sequence[str] = ()) -> pd.DataFrame:
        """The rows of one kind of network, or of all; of some sources, or of all."""
        index = self.wide.index
        pairs = zip(index.get_level_values(0), index.get_level_values(1), strict=True)
        keep = [(not kind or self.kinds[pair] == kind) and (not sources or pair[0] in sources) for pair in pairs]
        return self.wide[keep]

    def mean(self, monitor: str, kind: str = "", sources: Sequence[str] = ()) -> Mean:
        """The mean accuracy of a monitor."""
        return self._mean(self.rows(kind, sources), lambda rows: rows[monitor])

    def difference(self, one: str, other: str, kind: str = "", sources: Sequence[str] = ()) -> Mean:
        """How much more accurate one monitor is than another on the same triples."""
        return self._mean(self.rows(kind, sources), lambda rows: rows[one] - rows[other])

    def gaps(self, monitor: str, kind: str) -> tuple[Mean, Mean, Mean]:
        """Accuracy on held-out images of D_v itself, on other sets, and the difference, over sources and D_v."""
        known = set(self.rows(kind)[monitor].dropna().index.droplevel(3))
        own = self.run.tables["od_test_gap"].query("monitor == @monitor")
        own = own[[fit in known for fit in zip(own["source"], own["model"], own["valid_set"], strict=True)]]
        clusters = [*zip(own["source"], own["valid_set"], strict=True)]
        two, three, gap = (
            mean_over(own[name].tolist(), clusters) for name in ("two_datasets", "three_datasets", "gap")
        )
        return two, three, gap

    def more_accurate(self) -> dict[str, str]:
        """The kind of network that gets more test images right, by source, where there are both."""
        table = self.run.tables["od_test_competence"].query("part == 'test' and metric == 'accuracy'")
        values = {(row["source"], kind_of(row["architecture"])): row["value"] for row in table.to_dict("records")}
        both = [source for source in self.sources if {(source, VGG), (source, RESNET)} <= set(values)]
        return {source: max((VGG, RESNET), key=lambda kind: values[source, kind]) for source in both}

    def between_networks(self, monitor: str) -> Mean:
        """How much more accurate a monitor is on the more accurate kind of network than on the other."""
        better = self.more_accurate()
        values = self.wide[monitor].dropna().reset_index()
        values["kind"] = [self.kinds[pair] for pair in zip(values["source"], values["model"], strict=True)]
        wide = values.pivot_table(index=["source", "valid_set", "test_set"], columns="kind", values=monitor)
        if not {VGG, RESNET} <= set(wide.columns):
            return mean_over([], [])
        wide = wide.dropna()
        wide = wide[[source in better for source in wide.index.get_level_values(0)]]
        signs = [1 if better[source] == VGG else -1 for source in wide.index.get_level_values(0)]
        clusters = zip(wide.index.get_level_values(0), wide.index.get_level_values(2), strict=True)
        return mean_over((np.asarray(signs, float) * (wide[VGG] - wide[RESNET])).tolist(), clusters)

    def best(self, sources: Sequence[str], without: Iterable[str] = ()) -> str:
        """The monitor of the highest mean on some sources, over the rows that it has."""
        return str(self.rows(sources=sources).drop(columns=list(without)).mean().idxmax())

    def rank(self, monitor: str, sources: Sequence[str]) -> tuple[int, int]:
        """Its rank among the monitors by mean accuracy on some sources, and how many have one."""
        means = self.rows(sources=sources).mean().dropna()
        return int((means > means.get(monitor, math.inf)).sum()) + 1, len(means)

    def _mean(self, rows: pd.DataFrame, of: Callable[[pd.DataFrame], pd.Series]) -> Mean:
        clusters = zip(rows.index.get_level_values(0), rows.index.get_level_values(3), strict=True)
        return mean_over(of(rows).tolist(), clusters)


Observation = tuple[str, str, str]
"""A sentence of the paper, what is measured here, and whether it repeats."""


def opposite(answer: str) -> str:
    """Yes for no and no for yes, for sentences that say that something is not the case."""
    return {YES: NO, NO: YES}.get(answer, OPEN)


def optimism(field: Field) -> Iterator[Observation]:
    """Observation i: near perfect on D_v itself, and a gap to other sets that holds."""
    for kind in (VGG, RESNET):
        two, three, gap = field.gaps("bin_class", kind)
        repeats = gap.is_above() if two.value >= NEAR_PERFECT else NO
        figures = f"BinClass/{kind}: {two.share()} on D_v itself, {three.share()} on other sets, gap {gap.points()}"
        yield "i. Two data sets yield overly optimistic results", figures, repeats


def uncertainty(field: Field) -> Iterator[Observation]:
    """Observation ii: both are behind the simpler ScoreSVM, which the paper holds them against."""
    for monitor in ("mc_dropout", "deep_ensemble"):
        behind = field.difference("score_svm", monitor)
        figures = f"`{monitor}` {field.mean(monitor).share()}; ScoreSVM less it {behind.points()}"
        yield "ii. MC-Dropout and DeepEnsemble are not reliable enough", figures, behind.is_above()


def networks(field: Field) -> Iterator[Observation]:
    """Observations iii and iv: neither the better classifier nor the other loss detects better."""
    for monitor in ("msp", "score_svm", "odin"):
        gain = field.between_networks(monitor)
        figures = f"`{monitor}` on the more accurate of VGG and ResNet, less on the other: {gain.points()}"
        yield "iii. A more accurate classifier is no better detector", figures, opposite(gain.is_above())
    for kind in (VGG, RESNET):
        gain = field.difference("logistic_svm", "score_svm", kind)
        figures = f"LogisticSVM less ScoreSVM, {kind}: {gain.points()}"
        yield "iv. K-way logistic loss is no better", figures, opposite(gain.is_above())


def images_alone(field: Field) -> Iterator[Observation]:
    """Observations v to viii, on monitors that ask no network of the source."""
    gain = field.difference("ae_threshold bce", "ae_threshold mse")
    yield "v. Autoencoders work better with BCE than with MSE", f"BCE less MSE: {gain.points()}", gain.is_above()
    small = [source for source in field.sources if source in SMALL_IMAGES]
    other = field.best(small, without=[f"knn_svm k={k}" for k in NEIGHBOURS])
    nearest = max(NEIGHBOURS, key=lambda k: field.mean(f"knn_svm k={k}", sources=small).value)
    gain = field.difference(f"knn_svm k={nearest}", other, sources=small)
    figures = f"on {', '.join(small)}: {nearest}-NNSVM less `{other}`, the best other: {gain.points()}"
    yield "vi. Neighbours are competitive on small images", figures, YES if gain.hi >= 0 else NO
    for monitor in LATENT:
        gain = field.difference("knn_svm k=1", f"{monitor} k=1")
        figures = f"1-NNSVM less `{monitor} k=1`: {gain.points()}"
        yield "vii. Latent codes of autoencoders do not help neighbours", figures, gain.is_above()
    rank, count = field.rank("pixelcnn", field.sources)
    below = float((field.wide["pixelcnn"].dropna() < CHANCE).mean())
    figures = f"{field.mean('pixelcnn').share()}, rank {rank} of {count}; below 50 % in {percent(below)} % of triples"
    repeats = YES if rank > 2 * count / 3 and below > 0 else NO
    yield "viii. PixelCNN++ is surprisingly low, at times below guessing", figures, repeats


def difficulty(field: Field) -> Iterator[Observation]:
    """Observations ix and x; the first needs sources that differ in classes and not in pixels."""
    means = (f"{source} {percent(field.rows(sources=[source]).mean().mean())}" for source in field.sources)
    yield "ix. Classes matter more than dimensions", f"mean of all methods: {'; '.join(means)}", OPEN
    large = [source for source in field.sources if source not in SMALL_IMAGES]
    rank, count = field.rank("odin", large)
    own = field.mean("odin", sources=large)
    figures = f"on {', '.join(large)}: ODIN {own.share()}, rank {rank} of {count}"
    yield "x. ODIN leads on realistic images, still below 80 %", figures, YES if rank == 1 and own.value < 0.8 else NO


def observations(field: Field) -> Iterator[Observation]:
    """All ten."""
    for part in (optimism, uncertainty, networks, images_alone, difficulty):
        yield from part(field)


def further(field: Field) -> Iterator[Observation]:
    """What else section 5 says of the means."""
    means = [field.mean(f"knn_svm k={k}").value for k in NEIGHBOURS]
    spread = max(means) - min(means)
    figures = f"means of 1, 2, 4, 8 neighbours in pixels lie within {100 * spread:.1f} points"
    yield "The number of neighbours does not matter", figures, YES if spread < 0.02 else NO
    for one, other, sentence in (
        ("mc_dropout", "deep_ensemble", "MC-Dropout is above DeepEnsemble"),
        ("knn_svm k=1", "msp", "1-NNSVM is above PbThreshold"),
        ("knn_svm k=1", "deep_ensemble", "1-NNSVM is above DeepEnsemble"),
        ("ae_threshold bce", "pixelcnn", "AEThreshold is above PixelCNN++"),
    ):
        gain = field.difference(one, other)
        yield sentence, gain.points(), gain.is_above()
    mnist = field.mean("ae_threshold bce", sources=["mnist"])
    yield "AEThreshold is near perfect on MNIST", mnist.share(), YES if mnist.value >= NEAR_PERFECT else NO


def table(run: rw.Run, of: Callable[[Field], Iterator[Observation]]) -> str:
    """Observations as a table: with the rows that count, and with all rows."""
    rows = [["observation", "here", "repeats", "with networks below their floor too", "repeats"]]
    counted, everything = (of(Field(run, everything=choice)) for choice in (False, True))
    rows += [[*one, *other[1:]] for one, other in zip(counted, everything, strict=True)]
    return markdown(rows)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = rw.open_run(parser.parse_args().run)
    print(table(run, observations))
    print("\nWhat else section 5 says\n")
    print(table(run, further))


if __name__ == "__main__":
    main()
