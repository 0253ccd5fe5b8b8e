"""Facts: what a run folder says of the run, whatever was tested, as plain values. No HTML, and no model is run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from roadworthy.core.competence import Competence, competence_of
from roadworthy.core.grouping import grouped
from roadworthy.core.manifests import MANIFEST, named_parts
from roadworthy.core.record import ArtifactRecord, DataRecord, ModelRecord, RunRecord, read_record
from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics import Metric
from roadworthy.report.questions import AnswerFacts, load_answers
from roadworthy.report.reading import Row, number_of, read_json, read_text
from roadworthy.report.why_facts import WhyFacts, read_why, why_facts
from roadworthy.report.words import MISSING, NO_BREAK, bounds, listing, number, words_of
from roadworthy.statistics.estimates import Estimate, no_estimate
from roadworthy.verdict import Criterion, Decision, Failed, failed_parts
from roadworthy.verdict.history import Entry, changes_since, history_lines, other_criteria, own_entry, read_history
from roadworthy.verdict.judge import never_pass
from roadworthy.verdict.why import stored_deciding_row

REPORT = "report.html"
WORST = 3


@dataclass(frozen=True, order=True)
class Condition:
    """What was shown: a shift at a level.

    >>> str(Condition("fog", 3)), str(CLEAN)
    ('fog, level 3', 'undisturbed')
    """

    shift: str
    level: float

    def __str__(self) -> str:
        return "undisturbed" if self.shift == UNDISTURBED else f"{self.shift}, level {self.level}"


CLEAN = Condition(UNDISTURBED, 0)


NOT_RUN = no_estimate("not part of this run")


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One measurement of a criterion, and what follows from it, in words."""

    where: str
    status: str
    because: str
    value: str
    bounds: str
    n: int
    groups: int
    method: str
    further_groups: int | None
    unit: str
    """What `groups` counts, in the plural."""
    finding: str = ""
    """What follows, with the condition, without the numbers that stand beside it."""


@dataclass(frozen=True)
class CriterionFacts:
    """One criterion and its finding."""

    criterion: Criterion
    status: str
    because: str
    decisive: JudgedRow
    rows: tuple[JudgedRow, ...]
    remark: str = ""
    why: WhyFacts | None = None

    @property
    def id(self) -> str:
        """The name by which the criterion is known."""
        return self.criterion.id

    @property
    def requirement(self) -> str:
        """What is required, with the metric as the report calls it."""
        return words_of(self.criterion.metric).label + self.criterion.sentence().removeprefix(self.criterion.metric)


@dataclass(frozen=True)
class Network:
    """A network that the run trained: its recipe, and how it does on undisturbed images against its stated floor."""

    system: str
    builder: str
    seed: str
    parameters: str
    competence: Competence
    hash: str

    @property
    def undertrained(self) -> bool:
        """Whether it is below its floor: then its answers say little about its method."""
        return self.competence.undertrained

    @property
    def shown_value(self) -> str:
        """How it does, as people read it."""
        return self._shown(self.competence.value)

    @property
    def shown_floor(self) -> str:
        """Its floor, as people read it."""
        return self._shown(self.competence.floor)

    def _shown(self, value: float) -> str:
        """An accuracy as a percentage, an overlap of boxes by its name, a share of what can be gained by its own."""
        metric = self.competence.metric
        if metric == "accuracy" or not math.isfinite(value):
            return number("accuracy", value)
        return f"IoU{NO_BREAK}{value:.3f}" if metric == "iou" else f"{number('accuracy', value)} {metric}"


@dataclass(frozen=True)
class Fitted:
    """Anything else that the run built before its cases: what it belongs to, and what is known of how good it is."""

    system: str
    builder: str
    competence: str
    hash: str


@dataclass(frozen=True)
class Facts:
    """What a run says of itself, or of one of its sources: then `source` is the name of that source.

    `failed` names the cases or monitors that failed, `history` holds every verdict of the run, and `file_count` is how
    many files have their hash in run.json or in a manifest. `answers` are those to the questions of the study,
    `decision` says who decided on the thresholds, where it is known. `path` is the folder of the run, and `of_sources`
    are the facts of each source where a run has several.
    """

    path: Path
    record: RunRecord
    study_file: str
    status: str
    models: tuple[str, ...]
    networks: tuple[Network, ...]
    fitted: tuple[Fitted, ...]
    failed: tuple[Failed, ...] = ()
    history: tuple[Entry, ...] = ()
    criteria: tuple[CriterionFacts, ...] = ()
    source: str | None = None
    file_count: int = 0
    answers: tuple[AnswerFacts, ...] = ()
    decision: Decision | None = None
    of_sources: tuple[Facts, ...] = ()

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the labels."""
        return tuple(self.data.class_names)

    @property
    def data(self) -> DataRecord:
        """The test data of its source, or of the first."""
        return (self.record.first if self.source is None else self.record.sources[self.source]).data

    @cached_property
    def known_models(self) -> Mapping[str, ModelRecord]:
        """The models of its source, or of all, by name."""
        return self.record.models if self.source is None else self.record.sources[self.source].models

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The sources of the run by name, where it has several."""
        return tuple(name for name in self.record.sources if name)

    @property
    def parts(self) -> tuple[Facts, ...]:
        """The facts of each source, or these where the run has only one."""
        return self.of_sources or (self,)

    @property
    def judged(self) -> bool:
        """Whether the report has a section on verdicts: for criteria, or for verdicts besides the run's own."""
        return bool(self.criteria) or len(self.history) > 1

    @cached_property
    def has_other_criteria(self) -> bool:
        """Whether the verdict is by other criteria than those that the study was run with."""
        return other_criteria(self.history)

    @cached_property
    def history_lines(self) -> list[str]:
        """What is other since the run's own verdict before, and what is lost of its history."""
        return history_lines(self.history)

    def changes_since(self, entry: Entry) -> list[str]:
        """What is other in an entry of the history than in the run's own verdict before it."""
        return changes_since(self.history, entry)

    @cached_property
    def own(self) -> Entry | None:
        """The entry of the history that is the run's own verdict."""
        return own_entry(self.history)

    @cached_property
    def repeats(self) -> int:
        """How often every disturbed condition was shown."""
        return 1 + max((case.stimulus.repeat for case in self.record.cases.values()), default=0)

    @cached_property
    def undertrained(self) -> frozenset[str]:
        """The models with a network that is below its floor."""
        return frozenset(network.system for network in self.networks if network.undertrained)

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """The models that rank conditions: those that are not undertrained, or all where none is left."""
        return tuple(model for model in self.models if model not in self.undertrained) or self.models

    def named(self, model: str, source: str | None = None) -> str:
        """A model's name, with a mark where it is undertrained; of a run of several sources, name the `source`."""
        known = f"{source}/{model}" if source else model
        return f"{model} (undertrained)" if known in self.undertrained else model


def asked_by(protocol: str, facts: Facts) -> Facts:
    """The facts with only the models that a protocol asked; a model that lacks what the protocol needs is left out."""
    left_out = {
        f"{source}/{name}" if source and facts.source is None else name
        for source, part in facts.record.protocols[protocol].sources.items()
        for name in part.left_out
        if facts.source in (None, source)
    }
    return replace(facts, models=tuple(model for model in facts.models if model not in left_out) or facts.models)


def load_facts(path: str | Path) -> Facts:
    """Read what a run folder says of the run and of each of its sources: run.json, study.yaml, verdict.json.

    These are long where a run has many conditions: whoever makes a report reads them once and hands the facts on.
    """
    run = Path(path)
    record, verdict = read_record(run), read_json(run, "verdict.json")
    failed = failed_parts(record)
    built = {name: artifact for name, artifact in record.artifacts.items() if artifact.status == "done"}
    of_models = {name for entry in record.models.values() for name in entry.artifacts if name in built}
    shown_as_networks = {name for name in of_models if _is_network(built[name])}
    whole = Facts(
        path=run,
        record=record,
        study_file=read_text(run, "study.yaml"),
        status=never_pass(verdict["status"], failed),
        models=tuple(record.models),
        networks=_networks(record.models, built),
        fitted=tuple(_fitted(*entry) for entry in built.items() if entry[0] not in shown_as_networks),
        failed=failed,
        history=tuple(read_history(run)),
        file_count=_count_files(run, record),
        answers=load_answers(run, verdict),
        decision=Decision.model_validate(verdict["decision"]) if "decision" in verdict else None,
    )
    deciding = read_why(run)

    def judged(facts: Facts) -> Facts:
        criteria = [(_criterion(entry, facts), why_facts(run, entry, deciding)) for entry in verdict["criteria"]]
        return replace(facts, criteria=tuple(replace(criterion, why=why) for criterion, why in criteria))

    known = {name: record.sources[name].models for name in whole.sources}
    of_sources = (
        replace(whole, source=name, models=tuple(models), networks=_networks(models, built))
        for name, models in known.items()
    )
    return replace(judged(whole), of_sources=tuple(judged(facts) for facts in of_sources))


def _networks(models: Mapping[str, ModelRecord], built: Mapping[str, ArtifactRecord]) -> tuple[Network, ...]:
    """The networks of some models among the artifacts that were built."""
    parts = [(model, name) for model, entry in models.items() for name in entry.artifacts if name in built]
    return tuple(_network(model, name, built[name]) for model, name in parts if _is_network(built[name]))


def _count_files(run: Path, record: RunRecord) -> int:
    """How many files of a run have a hash, the report itself included, as `roadworthy verify` counts them."""
    folders = [run / Path(name).parent for name in record.files if Path(name).name == MANIFEST]
    return len({*record.files, REPORT}) + sum(len(named_parts(folder)) for folder in folders)


def _is_network(artifact: ArtifactRecord) -> bool:
    """Whether it is a network that was trained; what is made of others has their figures, and is none itself."""
    return competence_of(artifact.competence) is not None and "networks" not in artifact.competence


def _fitted(name: str, artifact: ArtifactRecord) -> Fitted:
    known = ((name.replace("_", " "), value) for name, value in artifact.competence.items())
    figures = (f"{name} {_as_text(value)}" for name, value in known if value not in ("", []))
    return Fitted(artifact.system, artifact.builder, ", ".join(figures), name)


def _as_text(value: Any) -> str:
    """A figure to four digits; hashes by what they are of, cut short; anything else as it is."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {hash_[:12]}" for name, hash_ in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _network(model: str, name: str, artifact: ArtifactRecord) -> Network:
    return Network(
        system=model,
        builder=artifact.builder,
        seed=str(artifact.seed),
        parameters=", ".join(f"{name} {value}" for name, value in artifact.parameters.items()),
        competence=competence_of(artifact.competence) or Competence("accuracy", math.nan, math.nan),
        hash=name,
    )


def estimate_of(row: Row) -> Estimate:
    """The estimate that a row of a table holds."""
    return Estimate(
        value=number_of(row["value"]),
        lo=number_of(row["lo"]),
        hi=number_of(row["hi"]),
        n=row["n"],
        groups=row["groups"],
        sd=number_of(row.get("sd")),
        method=row.get("method") or "",
        reason=row.get("reason") or "",
    )


def bounded(metric: Metric | str, estimate: Estimate) -> str:
    """A value with its bounds, or why there is none."""
    if estimate.missing:
        return f"{MISSING} ({estimate.reason})"
    return f"{number(metric, estimate.value)} ({bounds(metric, estimate.lo, estimate.hi)})"


def metrics_without_value(cells: Iterable[tuple[str, object, Estimate]]) -> list[str]:
    """A sentence on the metrics that have no value in any condition, by reason; cells are (metric, condition, value).

    >>> metrics_without_value([("v", "fog", no_estimate("it raised")), ("v", "rain", no_estimate("it raised"))])
    ['Metric v has no value in any of 2 conditions: it raised.']
    """
    by_metric = grouped((metric, (condition, cell)) for metric, condition, cell in cells)
    empty = {metric: own for metric, own in by_metric.items() if all(cell.missing for _, cell in own)}
    by_reason = grouped(
        ((own[0][1].reason, len({condition for condition, _ in own})), metric) for metric, own in empty.items()
    )
    sentences = []
    for (reason, conditions), metrics in by_reason.items():
        subject = f"Metric {metrics[0]} has" if len(metrics) == 1 else f"Metrics {listing(metrics)} have"
        where = f" in any of {conditions} conditions" if conditions > 1 else ""
        sentences.append(f"{subject} no value{where}: {(reason or 'not measured').rstrip('.')}.")
    return sentences


def defined(values: Iterable[float]) -> list[float]:
    """The values that are not NaN."""
    return [value for value in values if not math.isnan(value)]


def mean_of(values: Iterable[float], default: float = math.nan) -> float:
    """The mean of the values that are not NaN; `default` where there are none."""
    known = defined(values)
    return math.fsum(known) / len(known) if known else default


def _criterion(entry: Row, facts: Facts) -> CriterionFacts:
    criterion = Criterion.model_validate({name: entry[name] for name in Criterion.model_fields if name in entry})
    metric = words_of(criterion.metric)
    rows = [_judged(row, criterion.figure, metric, facts) for row in entry["rows"]]
    return CriterionFacts(
        criterion=criterion,
        status=entry["status"],
        because=entry["because"],
        decisive=rows[entry["rows"].index(stored_deciding_row(entry))],
        rows=tuple(rows),
        remark=entry.get("remark", ""),
    )


def _judged(row: Row, figure: str, metric: Metric, facts: Facts) -> JudgedRow:
    where = dict(row["where"])
    if "model" in where:
        where["model"] = facts.named(where["model"], where.get("source", ""))
    elif any(name.startswith(f"{where.get('source')}/") for name in facts.undertrained):
        where["source"] += " (undertrained)"
    condition = ", ".join(f"{name} {value}" for name, value in where.items())
    return JudgedRow(
        where=condition,
        finding=_finding(row, figure, condition),
        value=number(metric, _judged_value(row)),
        bounds=bounds(metric, number_of(row["lo"]), number_of(row["hi"])),
        unit=row.get("unit", "objects").removeprefix("independent "),
        **{name: row[name] for name in ("status", "because", "n", "groups", "method", "further_groups")},
    )


def _judged_value(row: Row) -> float:
    """The value of a judged row; one without a value and with a lower bound is infinite, which JSON cannot say."""
    return math.inf if row["value"] is None and row["lo"] is not None else number_of(row["value"])


def _finding(row: Row, figure: str, condition: str) -> str:
    """The sentence of a judged row without the metric and its numbers, where it begins with them as they are stored."""
    numbers = [number_of(row[name]) for name in ("value", "lo", "hi")]
    stored = ", ".join(f"{name} {value}" for name, value in row["where"].items())
    start = "{} {:.4f} [{:.4f}, {:.4f}]".format(figure, *numbers) + (f" ({stored})" if stored else "")
    if not row["because"].startswith(start):
        return str(row["because"])
    rest = row["because"].removeprefix(start).removeprefix(":").strip()
    return f"{condition}: {rest}" if condition else rest[:1].upper() + rest[1:]
