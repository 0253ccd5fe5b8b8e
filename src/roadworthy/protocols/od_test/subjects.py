"""The subjects of an OD-test: every model of every source, with the triples that its monitors are tested on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import pandas as pd

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.protocols.od_test.names import DISTANCE, FAR, NEAR
from roadworthy.protocols.od_test.settings import Context
from roadworthy.verdict import Criterion

LEAST_REPRESENTED = 4
"""The sets of a triple: validation and test images of the source, D_v and D_t."""


@dataclass(frozen=True)
class Subject:
    """A model of a source, which monitors are tested on: the `source` of a triple. `label` names it in the rows."""

    label: str
    source: str
    model: str
    cases: Sequence[Any]
    context: Context

    @property
    def outliers(self) -> list[str]:
        """The outlier sets that it meets."""
        return [key.partition("/")[2] for key in self.context.images if key.startswith("outliers/")]

    def triples(self, *monitors: str) -> list[dict[str, str]]:
        """The triples of some monitors, or of all: those that failed, too."""
        absent = self.context.left_out_of.get(self.model, [])
        known = {**self.context.monitors, **self.context.failed}
        chosen = monitors or [label for label in known if label not in absent]
        return triples_of(self.label, chosen, self.outliers, self.context.near)

    @cached_property
    def fits(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The cases of its monitors: by label, by the D_v that a fit is for ('' for all), by set."""
        fits: dict[str, dict[str, dict[str, Any]]] = {}
        for case in self.cases:
            if (case.labels["role"], case.labels.get("model")) == ("monitor", self.model):
                own = fits.setdefault(case.system, {}).setdefault(case.labels.get("fitted_on", ""), {})
                own[case.labels["set"]] = case
        return fits

    def failed(self, failure: Callable[[Any], str] = lambda case: str(case.failure)) -> dict[str, str]:
        """The monitors without any triple whose four sets were represented, with the reason.

        `failure` says of a case why it failed. A monitor that lacks some sets loses the triples that read them alone.
        """
        reasons = dict(self.context.failed)
        for label, fits in self.fits.items():
            left = {on: {key for key, case in sets.items() if not failure(case)} for on, sets in fits.items()}
            needed = {on: {"valid", "test", *([f"outliers/{on}"] if on else [])} for on in fits}
            if not any(needed[on] <= left[on] and len(left[on]) >= LEAST_REPRESENTED for on in fits):
                reasons[label] = next(filter(None, (failure(case) for sets in fits.values() for case in sets.values())))
        return reasons

    @property
    def pairs(self) -> int:
        """How many triples each monitor has: the ordered pairs of the sets."""
        return len(self.outliers) * (len(self.outliers) - 1)


class Subjects:
    """All models of all sources. Tables tell them apart by `source`, or by `model` where a study has one source.

    Where a source of several has several models, by both.
    """

    def __init__(self, sources: Mapping[str, tuple[Sequence[Any], Context]]) -> None:
        """Of sources by name ('' where a study has one without a name), each with its cases and its context."""
        several = "" not in sources
        both = several and any(len(context.architectures) > 1 for _, context in sources.values())
        self.columns: tuple[str, ...] = ("source", "model") if both else ("source",) if several else ("model",)
        self.all = [
            Subject(f"{source}/{model}" if both else source or model, source, model, cases, context)
            for source, (cases, context) in sources.items()
            for model in context.architectures
        ]

    def triples(self) -> list[dict[str, str]]:
        """Every triple."""
        return [triple for subject in self.all for triple in subject.triples()]

    def translated(self, criterion: Criterion) -> Criterion:
        """A criterion that speaks of the labels of subjects in place of sources and models."""
        asked = {name: criterion.where[name] for name in ("source", "model") if name in criterion.where}
        if not asked:
            return criterion
        where = {name: wanted for name, wanted in criterion.where.items() if name not in asked}
        chosen = self.all
        for name, wanted in asked.items():
            names = wanted if isinstance(wanted, list) else [wanted]
            known = [*dict.fromkeys(getattr(subject, name) for subject in self.all)]
            for unknown in (one for one in names if one not in known):
                raise InputError(f"criterion {criterion.id}: {UnknownName(name, str(unknown), known)}")
            chosen = [subject for subject in chosen if getattr(subject, name) in names]
        return criterion.model_copy(update={"where": where | {"source": [subject.label for subject in chosen]}})

    def named(self, label: str) -> dict[str, str]:
        """The columns that tell a subject apart; `all` stays what it is."""
        subject = next((subject for subject in self.all if subject.label == label), None)
        return {column: label if subject is None else getattr(subject, column) for column in self.columns}

    def with_own_columns(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table with the columns that tell subjects apart, in place of their label."""
        if self.columns == ("source",) or "source" not in table:
            return table
        position = list(table.columns).index("source")
        named = {label: self.named(label) for label in table["source"].unique()}
        columns = pd.DataFrame([named[label] for label in table["source"]], table.index, self.columns)
        return pd.concat([table.iloc[:, :position], columns, table.iloc[:, position + 1 :]], axis=1)

    def where(self, where: Mapping[str, Any]) -> dict[str, Any]:
        """The same of the conditions of a measurement."""
        named = self.named(where["source"]) if "source" in where else {}
        return {**named, **{key: value for key, value in where.items() if key != "source"}}


def triples_of(
    source: str, monitors: Sequence[str], outlier_sets: Sequence[str], near: Collection[str] = ()
) -> list[dict[str, str]]:
    """The triples of a source: one per monitor and ordered pair D_v != D_t, as rows and criteria name it.

    >>> [(row["valid_set"], row["test_set"], row["ood"]) for row in triples_of("signs", ["msp"], "ab", near="a")]
    [('a', 'b', 'far'), ('b', 'a', 'near')]
    """
    return [
        {"source": source, "valid_set": valid_set, "test_set": test_set, "monitor": monitor}
        | {DISTANCE: NEAR if test_set in near else FAR}
        for monitor in monitors
        for valid_set, test_set in permutations(outlier_sets, 2)
    ]
