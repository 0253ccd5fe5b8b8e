"""What the settings of a study come to on a data set and for a model; what does not fit is an error before the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset, Model, Shift
from roadworthy.core.tables import SOURCE
from roadworthy.metrics import METRICS
from roadworthy.metrics.coverage import scenario_coverage
from roadworthy.metrics.weighted_confusion import severity_matrix
from roadworthy.protocols.condition_columns import Columns, conditions_of, shown_values, why_no_condition
from roadworthy.protocols.dependability.context import Resolved
from roadworthy.protocols.dependability.names import NAME, explained
from roadworthy.protocols.dependability.settings import DEFAULT_ATTACKS, DEFAULT_SHIFTS, Settings, Transformer
from roadworthy.protocols.dependability.table_specs import PROPOSALS
from roadworthy.shifts import ATTACKS, Attack
from roadworthy.shifts.adversarial import MaximumNorm
from roadworthy.statistics.degradation import independent_frequencies
from roadworthy.statistics.slices import check_slices

BLACK_BOX = "square"
MOST_LACKING = 1_000_000
"""Images that cells may lack, at most, where scenarios are proposed for all of them."""


def resolve(settings: Settings, data: Dataset, train: Dataset | None = None) -> Resolved:
    """The settings on test data and, where there is some, training data; what does not fit is an `InputError`."""
    settings = settings.inlined(Path())
    columns, trained = conditions_of(data), {} if train is None else conditions_of(train)
    values, left_out = _values(settings, columns, trained, data.name)
    listed = "; ".join(f"{name} has {why}" for name, why in left_out.items())
    nothing = f"the data set {data.name} has no columns of conditions{f' ({listed})' if listed else ''}"
    resolved = Resolved(
        settings=settings,
        conditions=values or None,
        no_schema="" if values else nothing,
        severity=_severity(settings, data),
        situations=_situations(settings, columns, values, data.name),
        grid=astuple(settings.heat_maps.grid(data.size)),
        left_out=left_out,
        training="" if train is None else train.name,
        no_training_conditions="" if train is None else _lacking(train.name, trained, values),
    )
    with explained(f"conditions of {data.name}: "):
        _check_conditions(resolved, columns)
    if resolved.training and not resolved.no_training_conditions:
        with explained(f"conditions of training data {resolved.training}: "):
            _check_counts(resolved, trained)
    return resolved


def _lacking(name: str, trained: Columns, conditions: Mapping[str, Sequence[str]]) -> str:
    """Why the conditions of training data cannot be counted: columns that it does not have; empty where it has all."""
    lacking = [condition for condition in conditions if condition not in trained]
    return f"the training data {name} has no column {', '.join(lacking)}" if lacking else ""


def _check_counts(resolved: Resolved, columns: Columns) -> None:
    """A `ValueError` where the values of data are not those of the schema, or cells lack more than can be proposed."""
    schema = resolved.condition_schema()
    if schema is None:
        return
    cover = scenario_coverage(schema, columns, k=resolved.k, needs=resolved.needs())
    lacking = sum(int(np.maximum(p.minimum - p.counts, 0)[p.feasible].sum()) for p in cover.projections)
    if lacking > MOST_LACKING:
        raise ValueError(
            f"needs ask for {lacking:,} more images than there are; at most {MOST_LACKING:,} are proposed for"
        )


def _check_conditions(resolved: Resolved, columns: Columns) -> None:
    """A `ValueError` where conditions, needs or k do not fit the data or each other, or give too many slices."""
    settings, values, schema = resolved.settings, resolved.conditions, resolved.condition_schema()
    if values is None or schema is None:
        if settings.impossible or settings.needs:
            raise ValueError(f"impossible and needs speak of conditions, but {resolved.no_schema}")
        return
    reserved = [name for name in values if name in (SOURCE, *PROPOSALS.columns)]
    if reserved:
        raise ValueError(f"a condition cannot be called {reserved[0]!r}, a column of the proposed scenarios: rename it")
    if resolved.k > len(values):
        raise ValueError(f"k is {resolved.k}, but there are {len(values)} conditions: {', '.join(values)}")
    _check_counts(resolved, columns)
    if settings.sliced:
        check_slices([len(shown_values(columns[name])) for name in values], min(settings.slices.depth, len(values)))


def _values(
    settings: Settings, columns: Columns, trained: Columns, name: str
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The conditions with their values, as the study says or as the data shows; and what makes other columns none.

    What the training data shows counts too; a column that it alone has is no condition of the test data.
    """
    axis = settings.axis
    if axis is not None:
        for column in (axis.column, axis.sequence):
            if column is not None and column not in columns:
                raise InputError(f"{NAME}: axis of {name}: {UnknownName('column', column, columns)}")
        if columns[axis.column].dtype.kind not in "iuf":
            raise InputError(f"{NAME}: the axis {axis.column!r} of {name} must hold numbers: a time or a distance")
    if isinstance(settings.conditions, dict):
        if not settings.conditions:
            raise InputError(f"{NAME}: conditions of {name}: name at least one condition with its values")
        return settings.conditions, {}
    skip = {axis.column, axis.sequence} if axis is not None else set()
    conditions, left_out = dict[str, list[str]](), dict[str, str]()
    for column, values in columns.items():
        both = [values, *([trained[column]] if column in trained else [])]
        kinds = sorted(set[str]().union(*map(shown_values, both)))
        if column in skip:
            continue
        if why := why_no_condition(both):
            left_out[column] = why
        else:
            conditions[column] = kinds
    left_out |= {column: "values in the training data alone" for column in trained if column not in columns}
    return conditions, left_out


def _severity(settings: Settings, data: Dataset) -> list[list[float]] | None:
    if settings.severity is None:
        return None
    assert isinstance(settings.severity, dict)
    with explained(f"severity, for the classes of {data.name}: "):
        table = severity_matrix(data.class_names, settings.severity, settings.severity_default)
    rows: list[list[float]] = table.tolist()
    return rows


def _situations(
    settings: Settings, columns: Columns, conditions: Mapping[str, Sequence[str]], name: str
) -> list[tuple[dict[str, str], float]]:
    if settings.frequencies is None:
        return []
    with explained(f"frequencies for {name}: "):
        if isinstance(settings.frequencies, dict):
            situations = independent_frequencies(settings.frequencies)
        else:
            situations = [(situation.where, situation.share) for situation in settings.frequencies]
            if len({frozenset(where) for where, _ in situations}) != 1:
                raise ValueError("all situations must name the same conditions")
            if len({frozenset(where.items()) for where, _ in situations}) < len(situations):
                raise ValueError("a situation is named twice")
        if not sum(share for _, share in situations) > 0 or min(share for _, share in situations) < 0:
            raise ValueError("frequencies must be at least 0, one of them above")
        for condition in situations[0][0]:
            if condition not in columns:
                raise ValueError(str(UnknownName("condition", condition, columns)))
            known = set(conditions.get(condition, ())) or shown_values(columns[condition])
            unknown = [where[condition] for where, share in situations if share > 0 and where[condition] not in known]
            if unknown:
                raise ValueError(
                    f"{UnknownName(f'value of {condition}', unknown[0], known)} Name it under conditions if it is met "
                    "in the field but not shown, or give it the frequency 0."
                )
    first = METRICS.get(settings.metrics[0])
    if not (first.of_images and first.higher_is_better):
        raise InputError(
            f"{NAME}: frequencies ask for a mean over images of which more is better, not for {first.name}"
        )
    return situations


@dataclass(frozen=True)
class Choice:
    """A transformer as one model is shown it, or why it is not shown it."""

    label: str
    shift: Shift
    reason: str = ""


def transformers_for(settings: Settings, model: Model, stored: bool) -> list[Choice]:
    """The transformers of a model. One without gradients meets the black-box attack in place of those that need them.

    `stored` predictions can be asked nothing new: they meet the shifts alone.
    """
    chosen = settings.transformers or [Transformer(name=name) for name in (*DEFAULT_SHIFTS, *DEFAULT_ATTACKS)]
    choices: dict[str, Choice] = {}
    for transformer in chosen:
        shift = transformer.shift()
        if not isinstance(shift, Attack):
            choices[transformer.label] = Choice(transformer.label, shift)
        elif stored:
            choices[transformer.label] = Choice(transformer.label, shift, "stored predictions cannot be attacked")
        elif model.capabilities >= shift.NEEDS:
            choices.setdefault(transformer.label, Choice(transformer.label, shift))
        elif isinstance(shift, MaximumNorm):
            why = f"{model.name} gives no gradient: {BLACK_BOX} with the same epsilon stands in"
            choices[transformer.label] = Choice(transformer.label, shift, why)
            instead = ATTACKS.get(BLACK_BOX).at(1, {1: {"epsilon": shift.epsilon}})
            label = f"{BLACK_BOX} epsilon {shift.epsilon}"
            choices.setdefault(label, Choice(label, instead))
        else:
            choices[transformer.label] = Choice(transformer.label, shift, f"{model.name} gives no gradient")
    return list(choices.values())
