"""Expected situations in the report, as facts: what tables say of each, of all together, and of requirements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.situations import table_specs
from roadworthy.protocols.situations.requirements import Requirement
from roadworthy.protocols.situations.table_specs import NAME
from roadworthy.report.facts import NOT_RUN, Facts, estimate_of
from roadworthy.report.reading import number_of, read_rows
from roadworthy.statistics import Estimate

MET, MISSED, UNDECIDED = "met", "missed", "undecided"


@dataclass(frozen=True)
class ExpectedSituation:
    """A situation and how often it is expected."""

    name: str
    shift: str
    level: int
    recorded: bool
    frequency: float

    def __str__(self) -> str:
        if self.recorded:
            return f"{self.name} (recorded)"
        return "undisturbed" if self.shift == UNDISTURBED else f"{self.shift}, level {self.level}"


@dataclass(frozen=True)
class RequirementShare:
    """The share of situations in which a model meets a requirement; `missed` and `undecided` are shares, too."""

    share: Estimate
    missed: float
    undecided: float


@dataclass(frozen=True)
class SituationFacts:
    """All that the report shows of expected situations, the most frequent first.

    cells, costs   by model, situation and metric;  expected: by model and metric
    requirements   what is required, by the name of the requirement
    shares         by model and requirement;  statuses: by model, requirement and situation, with the joint bounds
    example        whether frequencies are the example;  observations: how many they rest on, 0 where shares were given
    """

    models: tuple[str, ...]
    situations: tuple[ExpectedSituation, ...]
    metrics: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Estimate]
    costs: Mapping[tuple[str, str, str], float]
    expected: Mapping[tuple[str, str], Estimate]
    requirements: Mapping[str, str]
    shares: Mapping[tuple[str, str], RequirementShare]
    statuses: Mapping[tuple[str, str, str], tuple[str, Estimate]]
    example: bool
    observations: int

    def called(self, requirement: str) -> str:
        """A requirement by its name, and what it requires where the name does not say so."""
        sentence = self.requirements[requirement]
        return requirement if requirement == sentence else f"{requirement} ({sentence})"

    def cell(self, model: str, situation: str, metric: str) -> Estimate:
        """A value of the run; one that is not part of it is missing, and says so."""
        return self.cells.get((model, situation, metric), NOT_RUN)

    def expectation(self, model: str, metric: str) -> Estimate:
        """A metric over all situations."""
        return self.expected.get((model, metric), NOT_RUN)

    def costly(self, model: str, metric: str) -> list[ExpectedSituation]:
        """The situations that cost a model something, the costliest first."""
        costs = {own: self.costs.get((model, own.name, metric), math.nan) for own in self.situations}
        return sorted((own for own in costs if costs[own] > 0), key=lambda own: -costs[own])


def load_situations(run: Path, facts: Facts) -> SituationFacts:
    """Read the tables of expected situations."""
    rows = read_rows(run, table_specs.BY_SITUATION.name, facts.source)
    situations = {
        row["situation"]: ExpectedSituation(
            row["situation"], row["shift"], row["level"], row["set"] == row["situation"], row["frequency"]
        )
        for row in rows
    }
    context = facts.record.protocols[NAME].sources[facts.source or ""].context
    requirements = [Requirement.model_validate(own) for own in context["requirements"]]
    met = read_rows(run, table_specs.MET.name, facts.source) if requirements else []
    judged = read_rows(run, table_specs.REQUIREMENTS.name, facts.source) if requirements else []
    return SituationFacts(
        models=facts.models,
        situations=tuple(sorted(situations.values(), key=lambda own: -own.frequency)),
        metrics=tuple(dict.fromkeys(row["metric"] for row in rows)),
        cells={(row["model"], row["situation"], row["metric"]): estimate_of(row) for row in rows},
        costs={(row["model"], row["situation"], row["metric"]): number_of(row["cost"]) for row in rows},
        expected={
            (row["model"], row["metric"]): estimate_of(row)
            for row in read_rows(run, table_specs.EXPECTED.name, facts.source)
        },
        requirements={own.name: own.sentence for own in requirements},
        shares={
            (row["model"], row["requirement"]): RequirementShare(estimate_of(row), row["missed"], row["undecided"])
            for row in met
        },
        statuses={
            (row["model"], row["requirement"], row["situation"]): (row["status"], estimate_of(row)) for row in judged
        },
        example=context["example"],
        observations=sum(own["count"] for own in context["situations"]),
    )
