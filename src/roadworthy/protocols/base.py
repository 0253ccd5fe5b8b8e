"""What a test procedure is: which cases it shows, what it reads from their readouts, which tables it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.registry import RegistrationError, Registry
from roadworthy.core.tables import TableSpec
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import Bench, PlannedCase, PlannedStimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Metric, declare_metrics
from roadworthy.metrics.base import DROP
from roadworthy.protocols.changes import worsened
from roadworthy.protocols.compared import Compared as Compared
from roadworthy.protocols.in_service import Watchable
from roadworthy.protocols.joint_test.question_figures import QuestionFigure
from roadworthy.protocols.repeat_analysis.questions import RepeatQuestion
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.statistics.estimates import no_estimate
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement, Why
from roadworthy.verdict.why import no_single_images


class RefusedCriterion(InputError):
    """A criterion matches what must not be judged so: it is refused, even where another source could be judged."""


class NoContext(BaseModel):
    """Of a protocol whose tables need nothing but readouts."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Planned:
    """What a protocol asks of one source: its cases, and what its tables need besides their readouts."""

    cases: Sequence[PlannedCase]
    context: BaseModel = field(default_factory=NoContext)


@dataclass(frozen=True)
class KnownCase:
    """A case as planned or as recorded: who was shown what. `labels` are what its protocol noted."""

    system: str
    stimulus: Stimulus
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredCase(KnownCase):
    """A case of a run on disk: its readouts, or why there are none, and the artifacts of the run by their hash.

    hash       of the case;  load: its readouts, of a system that answers as models do
    columns    reads columns of it by name
    """

    failure: str = ""
    hash: str = ""
    load: Callable[[], Readouts] = lambda: _nothing()
    columns: Callable[..., dict[str, NDArray[Any]]] = lambda *names: _nothing()
    artifact: Callable[[str], Path] = lambda recipe: _no_artifact(recipe)


def _nothing() -> Any:
    raise InputError("a failed case has no readouts")


def _no_artifact(recipe: str) -> Path:
    raise InputError(f"the run has no artifact {recipe}: run the study again")


@dataclass(frozen=True)
class Part:
    """What a protocol knows of one source, planned or stored: its cases, its context, and the classes of its data.

    `settings` are those of the study where evidence is asked for. `measured` gives the rows of this source in a table
    of what was measured live, `timing_*`, by its name; none where the run has no such table.
    """

    source: str
    cases: Sequence[Any]
    context: Any
    class_names: Sequence[str]
    settings: Any = None
    measured: Callable[[str], pd.DataFrame] = lambda name: pd.DataFrame()


class Evidence(ABC):
    """What the readouts of one run say under one protocol."""

    @abstractmethod
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol, from stored readouts alone."""

    @abstractmethod
    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion: a measurement per condition, or one for all where `over` is pooled."""

    def deciding(self, criterion: Criterion, measured: Measurement) -> Why:
        """The objects and images that decide a criterion which is not met in a condition, one of `measure`."""
        return no_single_images("this protocol does not tell which decide its figures")

    @abstractmethod
    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """Write what the report shows of the stimuli; the tables say which file is what."""

    def timing(self, cases: pd.DataFrame, artifacts: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Tables of what it cost, from `timing_cases` and `timing_artifacts`, beside those of every run."""
        return {}

    def live(self, cases: Sequence[PlannedCase], earlier: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Tables of what systems cost while they are asked, measured while nothing else runs; named `timing_*`.

        `cases` have their live systems; `earlier` are the tables of the run in the same folder, if there is one: what
        was measured there need not be asked again. From here on its tables and measurements rest on what is returned;
        those of a stored run rest on `Part.measured`.
        """
        return {}

    def lost(self) -> str:
        """Why there is no value at all; empty where there is one."""
        return ""

    def in_service(self) -> list[Watchable]:
        """What of it can be watched after approval without criteria: shares rejected, certainties."""
        return []

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """Every condition by each of the metrics: `before`, of which this is the evidence, and `after`, of the other.

        A condition that cannot be paired has a reason. A protocol that says what is `compared` defines this. It starts
        from `after.change(...)`, so that criteria against a baseline can be judged by it, whatever their confidence.
        """
        raise NotImplementedError(f"{type(self).__qualname__} names metrics to compare, but does not compare them")

    def worsening(
        self, baseline: Self, before: Compared, after: Compared, criterion: Criterion, metric: Metric
    ) -> list[Measurement]:
        """How much worse a metric is than in the baseline, in each condition that matches a criterion; see `changes`.

        Bounds have the confidence of `after`, of which this is the evidence.
        """
        measured = self.measure(criterion, after.confidence)
        try:
            changes = [*baseline.compare(self, before, after, [metric.name])]
        except InputError as error:
            return [replace(one, estimate=no_estimate(f"not compared: {error}"), further=None) for one in measured]
        return [worsened(one, changes, metric, after.confidence) for one in measured]


class Protocol(ABC):
    """A test procedure. `name` is its key in a study."""

    name: ClassVar[str]
    summary: ClassVar[str]
    limits: ClassVar[str] = ""
    """What its figures do not say, in one to three sentences: its page of the report states them first."""
    settings: ClassVar[type[BaseModel]]
    """What a study may say of it: a frozen model; every field has a default."""
    context: ClassVar[type[BaseModel]] = NoContext
    """What its tables need besides readouts, as stored in run.json."""
    table_specs: ClassVar[tuple[TableSpec, ...]] = ()
    """Every table that a run can have from it; one that is not declared here cannot be written."""
    columns: ClassVar[frozenset[str]] = frozenset({"probabilities"})
    """What a system must answer in to be asked; others are left out and named."""
    is_default: ClassVar[bool] = False
    """True for the protocol of studies that name none, and of criteria that name none."""
    shows_outliers: ClassVar[bool] = False
    """True where it shows data from outside the domain."""
    shows_recorded: ClassVar[bool] = False
    """True where it shows the recorded sets of a source."""
    prints_latex: ClassVar[bool] = False
    """True where its tables are written as LaTeX too."""
    compared: ClassVar[tuple[str, ...]] = ()
    """The metrics that runs are compared by unless others are asked for; without any its figures are not compared."""
    subject: ClassVar[str] = ""
    """What its conditions are (outliers), as a comparison calls them; the default protocol's are shifts at levels."""
    suites: ClassVar[Mapping[str, BaseModel]] = {}
    """Settings with a name and a version, such as `standard@1`: they never change, so that figures stay comparable.
    A suite that several protocols declare spans them."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """What besides the test data it makes use of in a suite: `outliers`, `train`, `validation`, `monitor`."""
    question_figures: ClassVar[tuple[QuestionFigure, ...]] = ()
    """Which of its figures answer the questions of an approval."""
    further_questions: ClassVar[frozenset[str]] = frozenset()
    """Questions that its criteria may answer besides those of its figures."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """The metrics of its tables, in their order, each as it is meant here; a study may name further ones."""
    repeat_questions: ClassVar[tuple[RepeatQuestion, ...]] = ()
    """What the repeats of its cases are asked: which factors matter more than the repeats scatter."""
    label_free: ClassVar[frozenset[str]] = frozenset()
    """Its metrics that can be counted in service without knowing what is right."""
    former_data_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that it once had under `data` of a study, each with the sentence on where to write it now."""
    pools_changes: ClassVar[bool] = False
    """True where a criterion against a baseline may pool conditions: `worsening` of its evidence bounds their mean."""
    shows_sources_together: ClassVar[bool] = False
    """True where one page of the report shows all sources; else each has a page of its own."""

    def metrics_of(self, settings: Any) -> tuple[Metric, ...]:
        """The metrics of the tables of a study with these settings, in their order, without derived ones."""
        return self.metrics

    def comparable(self, settings: Any) -> tuple[Metric, ...]:
        """All metrics that runs with these settings can be compared by, in the order of the table."""
        return self.metrics_of(settings) if self.compared else ()

    def check_question(self, criterion: Criterion) -> None:
        """Raise an `InputError` where a criterion carries a question that its metric does not answer here.

        A metric that is declared as a figure answers the questions it is declared for; others answer any question of
        the protocol.
        """
        question, metric = criterion.question, criterion.metric.removesuffix(DROP)
        of_metric = {figure.question for figure in self.question_figures if figure.metric == metric}
        known = of_metric or {figure.question for figure in self.question_figures} | self.further_questions
        if question is not None and known and question not in known:
            raise InputError(
                f"criterion {criterion.id}: {criterion.metric} of {self.name} does not answer the question {question}, "
                f"but {' and '.join(sorted(known))}"
            )

    def check_against(self, criterion: Criterion, settings: Any) -> None:
        """Raise an `InputError` where a criterion against a baseline asks for what runs are not compared by."""
        known = [metric.name for metric in self.comparable(settings)]
        what = f"criterion {criterion.id}: {criterion.metric} of {self.name} cannot be judged against a baseline"
        if not known:
            raise InputError(f"{what}: the protocol offers no comparison of runs")
        if criterion.metric.endswith(DROP) and criterion.metric.removesuffix(DROP) in known:
            raise InputError(f"{what}: it is a drop already, name {criterion.metric.removesuffix(DROP)}")
        if criterion.metric not in known:
            raise InputError(f"{what}: runs are compared by {', '.join(known)} there")
        if criterion.over == "pooled" and not self.pools_changes:
            raise InputError(f"{what} with over: pooled: its conditions are compared one by one, say each or worst")

    def describe(self, settings: Any) -> str:
        """What settings ask for, in a few words, for the list of suites."""
        return ""

    def suite_settings(self, settings: Any, given: Mapping[str, Any]) -> Any:
        """The settings of a suite where this is given besides the test data: see `uses`."""
        return settings

    def inlined(self, settings: Any, base: Path) -> Any:
        """The settings with the content of the files that they name, paths starting from `base`."""
        return settings

    def learns_from(self, settings: Any, monitors: Mapping[str, Any]) -> frozenset[str]:
        """The data besides the test data that it must be given on the bench: `train`, `validation`."""
        return frozenset()

    def has_thresholds(self, settings: Any) -> bool:
        """Whether it finds thresholds on validation data: then nothing is fitted on the same objects of it."""
        return False

    @abstractmethod
    def check_settings(self, settings: Any) -> None:
        """Raise an `InputError` for what is wrong whatever the data: an unknown shift, a level it does not have."""

    @abstractmethod
    def count_stimuli(self, settings: Any, foreign: int, monitors: int) -> int:
        """How many stimuli it shows each model, given how many sets outside and monitors there are: by arithmetic."""

    @abstractmethod
    def planned_stimuli(self, settings: Any, bench: Bench) -> list[PlannedStimulus]:
        """Every stimulus it shows."""

    @abstractmethod
    def plan(self, settings: Any, bench: Bench) -> Planned:
        """Every case it needs of one source."""

    @abstractmethod
    def check(self, cases: Sequence[Any], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches none of the cases of a source."""

    @abstractmethod
    def evidence(self, part: Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases of one source say."""

    def looked_at(
        self,
        sources: Mapping[str, Planned],
        criteria: Sequence[Criterion],
        settings: Any,
        asked_by_others: Mapping[str, str],
    ) -> Mapping[str, Planned]:
        """What it asks of each source, where criteria are judged while answers come in: some cases may `stop` early.

        asked_by_others   by the hash of a case, another protocol that needs it in full

        A protocol that does not define this shows every case in full.
        """
        return sources

    def why_in_full(self, criterion: Criterion, parts: Sequence[Part]) -> str:
        """Why a criterion of a study that runs until it is decided needs cases in full; empty where it does not."""
        return f"protocol {self.name} shows every case in full"

    def page(self, run: Path, facts: Facts) -> Page | None:
        """What the report shows of the run in a folder; None shows the table of the protocol's name."""
        return None

    def row_facts(self, case: KnownCase) -> Mapping[str, Any]:
        """What the rows of its tables that rest on a case have in which column: see `protocols.behind`."""
        stimulus, labels = case.stimulus, dict(case.labels)
        shown = {"shift": stimulus.name, "level": stimulus.level, "repeat": stimulus.repeat}
        return {"model": case.system, **shown, **labels}

    def is_over_objects(self, criterion: Criterion) -> bool:
        """Whether the bounds that a criterion is judged by count objects."""
        return True

    def remark(self, criterion: Criterion, parts: Sequence[Part]) -> str:
        """What a reader must know of how a criterion is read here, beside its threshold; empty where nothing."""
        return ""

    def check_all(self, parts: Sequence[Part], criterion: Criterion, settings: Any = None) -> None:
        """Raise an `InputError` where a criterion matches nothing of a run."""
        self.matching_sources(parts, criterion)

    def matching_sources(self, parts: Sequence[Part], criterion: Criterion) -> list[str]:
        """The sources that a criterion speaks of and in which it matches something; none is an `InputError`.

        Where it matches what must not be judged so (`RefusedCriterion`), it is refused, whatever it matches elsewhere.
        """
        matched, refusals = [], []
        for part in chosen_parts(parts, criterion):
            try:
                self.check(part.cases, without_source(criterion), part.context)
                matched.append(part.source)
            except RefusedCriterion:
                raise
            except InputError as error:
                refusals.append(error)
        if not matched:
            raise [*refusals, InputError(f"criterion {criterion.id} names no source: leave it out to speak of all")][0]
        return matched

    def evidence_of(
        self,
        parts: Sequence[Part],
        settings: Any = None,
        *,
        seed: int,
        workers: int = 1,
        resamples: int | None = None,
    ) -> Evidence:
        """What the stored cases of all sources say: each source by itself, unless a protocol joins them."""
        options: dict[str, Any] = {"seed": seed, "workers": workers, "resamples": resamples}
        by_source = {part.source: self.evidence(replace(part, settings=settings), **options) for part in parts}
        return BySource(by_source, partial(self.matching_sources, parts)) if "" not in by_source else by_source[""]


class BySource(Evidence):
    """The evidence of several sources side by side, `matching` a criterion or not: tables gain the column `source`."""

    def __init__(self, by_source: Mapping[str, Evidence], matching: Callable[[Criterion], list[str]]) -> None:
        self.by_source, self.matching = by_source, matching

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table with the rows of all sources."""
        return joined({source: evidence.tables() for source, evidence in self.by_source.items()})

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches in the sources that the criterion speaks of."""
        return [
            replace(measured, where={"source": source, **measured.where})
            for source in self.matching(criterion)
            for measured in self.by_source[source].measure(without_source(criterion), confidence)
        ]

    def deciding(self, criterion: Criterion, measured: Measurement) -> Why:
        """What decides it in the source of the condition."""
        where = {name: value for name, value in measured.where.items() if name != "source"}
        own = self.by_source[measured.where["source"]]
        return own.deciding(without_source(criterion), replace(measured, where=where))

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """Those of every source."""
        return joined(
            {
                source: evidence.pictures(own, media)
                for source, evidence in self.by_source.items()
                if (own := [planned for planned in cases if planned.source == source])
            }
        )

    def live(self, cases: Sequence[PlannedCase], earlier: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Those of every source."""
        return joined(
            {
                source: evidence.live(own, earlier)
                for source, evidence in self.by_source.items()
                if (own := [planned for planned in cases if planned.source == source])
            }
        )

    def timing(self, cases: pd.DataFrame, artifacts: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Those of every source."""
        return joined({source: evidence.timing(cases, artifacts) for source, evidence in self.by_source.items()})

    def in_service(self) -> list[Watchable]:
        """That of every source."""
        return [
            replace(own, where={"source": source, **own.where})
            for source, evidence in self.by_source.items()
            for own in evidence.in_service()
        ]

    def lost(self) -> str:
        """Why no source has a value."""
        reasons = [evidence.lost() for evidence in self.by_source.values()]
        return reasons[0] if all(reasons) else ""


def joined(tables: Mapping[str, Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Tables of several sources, one below the other, with the source as first column."""
    by_name: dict[str, list[pd.DataFrame]] = {}
    for source, own in tables.items():
        for name, table in own.items():
            placed = table.copy()
            placed.insert(0, "source", source)
            by_name.setdefault(name, []).append(placed)
    return {
        name: pd.concat([t for t in some if len(t)] or some[:1], ignore_index=True) for name, some in by_name.items()
    }


def without_source(criterion: Criterion) -> Criterion:
    """The same criterion for a source by itself."""
    where = {name: wanted for name, wanted in criterion.where.items() if name != "source"}
    return criterion if len(where) == len(criterion.where) else criterion.model_copy(update={"where": where})


def chosen_parts(parts: Sequence[Part], criterion: Criterion) -> list[Part]:
    """The parts of the sources that a criterion speaks of; one that the run does not have is an error."""
    known = [part.source for part in parts]
    wanted = criterion.where.get("source", known)
    names = wanted if isinstance(wanted, list) else [wanted]
    if "" in known and "source" in criterion.where:
        raise InputError(f"criterion {criterion.id} names a source, but the study has no sources: leave it out")
    for name in names:
        if name not in known:
            raise InputError(f"criterion {criterion.id}: {UnknownName('source', str(name), known)}")
    return [part for part in parts if part.source in names]


def check_protocol(name: str, protocol: Any) -> None:
    """Raise a `RegistrationError` that names what a class lacks to be the protocol of that name."""
    if not (isinstance(protocol, type) and issubclass(protocol, Protocol)):
        raise RegistrationError(f"the protocol {name!r} must be a class that is derived from Protocol")
    settings, specs = getattr(protocol, "settings", None), protocol.table_specs
    problems = []
    if lacking := [attribute for attribute in ("name", "summary", "settings") if not hasattr(protocol, attribute)]:
        problems.append(f"lacks {', '.join(lacking)}")
    if methods := sorted(protocol.__abstractmethods__):
        problems.append(f"does not define {', '.join(methods)}")
    if getattr(protocol, "name", name) != name:
        problems.append(f"has the name {protocol.name!r}, but is registered as {name!r}")
    if settings is not None and not (isinstance(settings, type) and issubclass(settings, BaseModel)):
        problems.append("has settings that are not a class derived from pydantic's BaseModel")
    elif required := [key for key, info in getattr(settings, "model_fields", {}).items() if info.is_required()]:
        problems.append(f"has settings without a default ({', '.join(required)})")
    if not isinstance(specs, tuple | list) or not all(isinstance(spec, TableSpec) for spec in specs):
        problems.append("has table_specs that are not a tuple of TableSpec")
    elif not specs:
        problems.append("declares no table: its author must list a TableSpec of each in `table_specs`")
    if problems:
        raise RegistrationError(f"the protocol {name!r} {'; it '.join(problems)} (docs/extending.md)")


class _Protocols(Registry[type[Protocol]]):
    """The registry of protocols: the metrics of one are known once it is registered."""

    def register(self, name: str) -> Callable[[type[Protocol]], type[Protocol]]:
        """Decorator that registers a protocol."""
        add = super().register(name)

        def declare(protocol: type[Protocol]) -> type[Protocol]:
            declare_metrics(name, add(protocol).metrics)
            return protocol

        return declare


PROTOCOLS: Registry[type[Protocol]] = _Protocols("protocol", check_protocol)
"""The test procedures by name; third parties add theirs under the entry point group `roadworthy.protocols`."""


def matching(label: str, rows: list[Any], columns: Sequence[str], criterion: Criterion) -> list[Any]:
    """The rows (with the columns as attributes) that a criterion's `where` asks for; nothing found is an error."""
    chosen = rows
    for column, wanted in criterion.where.items():
        if column == "protocol":
            continue
        if column not in columns:
            raise InputError(f"{label}: {UnknownName('condition', column, [*columns, 'protocol'])}")
        values = wanted if isinstance(wanted, list) else [wanted]
        known = sorted({getattr(row, column) for row in chosen})
        for value in values:
            if value not in known:
                raise InputError(f"{label} asks for {column} {value!r}, but the run has {column} {known}")
        chosen = [row for row in chosen if getattr(row, column) in values]
    if not chosen:
        raise InputError(f"{label} matches no case of the run")
    return chosen
