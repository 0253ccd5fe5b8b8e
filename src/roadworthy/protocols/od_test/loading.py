"""Reading an OD-test from the tables and the record of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from roadworthy.core.competence import is_undertrained
from roadworthy.core.tables import TableSpec
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.facts import OdTestFacts
from roadworthy.protocols.od_test.findings import load_findings
from roadworthy.protocols.od_test.names import ACCURACY, ALL, DISTANCE, NAME
from roadworthy.protocols.od_test.ranking import COSTS, CostRow, Lost, Rejected, Source
from roadworthy.protocols.od_test.settings import Context, Settings
from roadworthy.protocols.od_test.subjects import Subject, Subjects
from roadworthy.report.facts import Facts, estimate_of
from roadworthy.report.reading import Row, has_table, number_of, read_rows
from roadworthy.statistics import Estimate

AIM = ("rejected", "prior", "cost", "threshold")
"""The settings that every calibration aims at."""


def load_od_test(path: str | Path, facts: Facts) -> OdTestFacts:
    """Read the tables of an OD-test."""
    run, what = Path(path), facts.record.protocols[NAME]
    rows, thresholds = _rows(run, table_specs.TRIPLES), table_specs.THRESHOLDS
    subjects = Subjects(
        {name: (part.cases, Context.model_validate(part.context)) for name, part in what.sources.items()}
    ).all
    settings = Settings.model_validate(what.settings)
    competence = _rows(run, table_specs.COMPETENCE)
    return OdTestFacts(
        sources=tuple(_source(subject, facts, competence) for subject in subjects),
        sets=tuple(dict.fromkeys(name for row in rows for name in (row["valid_set"], row["test_set"]))),
        means=_by_monitor(_rows(run, table_specs.METHODS)),
        alone=_by_monitor(_rows(run, table_specs.UNSUPERVISED_METHODS)),
        architectures=_by_monitor(_rows(run, table_specs.ARCHITECTURES), "architecture"),
        triples={
            (row["source"], row["monitor"], row["valid_set"], row["test_set"]): _cell(row)
            for row in rows
            if row["metric"] == ACCURACY
        },
        costs=tuple(
            CostRow(row["source"], row["monitor"], *(number_of(row.get(name)) for name in COSTS))
            for row in _rows(run, table_specs.TIMING)
        ),
        lost=tuple(Lost(**row) for row in _rows(run, table_specs.MISSING)),
        aim={name: getattr(settings, name) for name in AIM},
        rejected=tuple(
            Rejected(row["source"], row["monitor"], number_of(row["achieved"]), row["images"], row["tied"])
            for row in (_rows(run, thresholds) if has_table(run, thresholds.name) else ())
        ),
        differs={
            label: note.differs_from_paper
            for subject in subjects
            for label, note in subject.context.monitors.items()
            if note.differs_from_paper
        },
        asking_none=frozenset(
            label for subject in subjects for label, note in subject.context.monitors.items() if not note.asks_model
        ),
        findings=load_findings(run, lambda table: _rows(run, table)),
    )


def _by_monitor(rows: list[Row], of: str = "source") -> dict[tuple[str, str, str, str], Estimate]:
    return {(row[of], row[DISTANCE], row["monitor"], row["metric"]): _cell(row) for row in rows}


def _cell(row: Row) -> Estimate:
    """A row of triples, whose n are images, or of means, whose n are triples."""
    return estimate_of({"n": row.get("triples"), "groups": row.get("clusters"), **row})


def _rows(run: Path, table: TableSpec) -> list[Row]:
    """The rows of a table; `source` is what tells them apart: a source, its model, or both."""
    rows = read_rows(run, table.name, None)
    for row in rows:
        model = row.pop("model", None)
        if model is not None:
            both = "source" in row and row["source"] != ALL
            row["source"] = f"{row['source']}/{model}" if both else model
    return rows


def _source(subject: Subject, facts: Facts, competence: list[Row]) -> Source:
    context = subject.context
    own = [row for row in competence if row["source"] == subject.label]
    return Source(
        name=subject.label,
        architecture=context.architectures[subject.model],
        undertrained=any(row["undertrained"] for row in own),
        classes=context.classes,
        size=" x ".join(map(str, context.size)),
        near=tuple(context.near),
        images=context.images,
        accuracy={row["part"]: _cell(row) for row in own},
        failed=subject.failed(lambda asked: facts.record.cases[asked.case].reason),
        networks=tuple(context.networks.get(subject.model, ())),
        domain=subject.source,
        weak_fits=_weak_fits(subject, facts),
    )


def _weak_fits(subject: Subject, facts: Facts) -> dict[str, tuple[str, ...]]:
    """The monitors of a subject whose own networks are below their floor, each with the D_v of such fits."""
    artifacts = facts.record.artifacts
    weak: dict[str, list[str]] = {}
    for label, fits in subject.fits.items():
        for fitted_on, cases in fits.items():
            built = artifacts.get(next(iter(cases.values())).labels.get("artifact", ""))
            if built is not None and is_undertrained(built.competence):
                weak.setdefault(label, []).append(fitted_on)
    return {label: tuple(names) for label, names in weak.items()}


def by_subject(test: OdTestFacts, facts: Facts) -> Facts:
    """The facts with the names that rows have for models, which may be those of their sources."""
    known = {network.hash: network for network in facts.networks}
    networks = [
        replace(known[hash_], system=source.name)
        for source in test.sources
        for hash_ in source.networks
        if hash_ in known
    ]
    return replace(facts, models=tuple(source.name for source in test.sources), networks=tuple(networks))
