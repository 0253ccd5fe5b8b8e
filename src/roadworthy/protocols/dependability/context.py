"""What the tables need besides readouts, as stored in run.json: settings resolved on the data, and what was planned."""

from __future__ import annotations

from pydantic import Field

from roadworthy.metrics.coverage import Need, Schema
from roadworthy.protocols.dependability.names import (
    ALL,
    COVERAGE,
    DATA,
    TEST,
    TRAIN,
    FigureKey,
    is_of_training_too,
    value_scope,
)
from roadworthy.protocols.dependability.settings import USUAL_K, Settings, Strict


class Resolved(Strict):
    """Settings made plain for one data set: all that evidence needs.

    conditions None where the data has none, and `no_schema` says why;  left_out  columns that are none, and why
    severity   (K, K) rows, or None;  situations  of the field, or none
    grid       height and width of the images, patch and stride of the heat maps: what makes a `PatchGrid`
    training   the name of the training data; empty where the study names none
    no_training_conditions   why the conditions of the training data cannot be counted; empty where they can
    """

    settings: Settings
    conditions: dict[str, list[str]] | None
    no_schema: str
    severity: list[list[float]] | None
    situations: list[tuple[dict[str, str], float]]
    grid: tuple[int, int, int, int]
    left_out: dict[str, str] = Field(default_factory=dict)
    training: str = ""
    no_training_conditions: str = ""

    @property
    def counted_data(self) -> tuple[str, ...]:
        """The data that coverage and neuron k-activation are counted on, the training data first."""
        return (TRAIN, TEST) if self.training else (TEST,)

    @property
    def k(self) -> int:
        """Conditions per cell."""
        return self.settings.k or min(USUAL_K, len(self.conditions or ()) or USUAL_K)

    @property
    def columns(self) -> list[str]:
        """The condition columns of the data that figures read."""
        axis = self.settings.axis
        along = () if axis is None else (axis.column, axis.sequence)
        situation = self.situations[0][0] if self.situations else ()
        return [*dict.fromkeys(name for name in (*(self.conditions or ()), *situation, *along) if name is not None)]

    @property
    def value_scopes(self) -> list[str]:
        """The scope of every value of every condition."""
        return [value_scope(name, value) for name, values in (self.conditions or {}).items() for value in values]

    def condition_schema(self) -> Schema | None:
        """The conditions with what cannot occur."""
        return None if self.conditions is None else Schema(self.conditions, self.settings.impossible)

    def needs(self) -> list[Need]:
        """What cells need: one of everything, unless a rule says otherwise; the last that fits counts."""
        return [Need(), *(Need(n.where, n.minimum, n.weight) for n in self.settings.needs)]


class ModelContext(Strict):
    """What a plan notes of one model.

    reasons  why it has no `heat_maps` or `layer NAME` (schema 1: `activations`);  refused  the same of transformers
    scopes   those that each metric will have
    """

    reasons: dict[str, str] = Field(default_factory=dict)
    scopes: dict[str, list[str]] = Field(default_factory=dict)
    refused: dict[str, str] = Field(default_factory=dict)


class Context(Strict):
    """What the tables need besides readouts: the settings as resolved on the data, and what was planned by model.

    version  1: coverage and neurons of the test data alone, patterns of single values of conditions;  2: of the
             training data too, and of full scenarios
    """

    resolved: Resolved
    models: dict[str, ModelContext]
    version: int = 1

    @property
    def of_test_alone(self) -> bool:
        """Whether it was planned by a version that counted on the test data alone."""
        return self.version < 2

    def figures(self) -> list[FigureKey]:
        """Every figure that the run has: the data's, then those of each model by name."""
        both = self.resolved.counted_data
        keys = [FigureKey(DATA, ALL, COVERAGE, counted) for counted in both]
        for name in sorted(self.models):
            for metric, scopes in self.models[name].scopes.items():
                for counted in both if is_of_training_too(metric) else (TEST,):
                    keys += [FigureKey(name, scope, metric, counted) for scope in scopes]
        return list(dict.fromkeys(keys))
