"""Records of runs that no study made: what a test says of models, cases and artifacts, as run.json holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roadworthy.core.record import (
    ArtifactRecord,
    AskedCase,
    CaseRecord,
    DataRecord,
    ModelRecord,
    ProtocolRecord,
    RunRecord,
    SourcePart,
    SourceRecord,
    StimulusRecord,
)
from roadworthy.engine.folder import RunFolder

ENVIRONMENT = {"python": "3.11.9", "cores": 2, "packages": {"roadworthy": "0.1.0", "numpy": "2.4.0"}}


@dataclass(frozen=True)
class Shown:
    """What a system was shown, and why it failed, if it did; `labels` are what the protocol notes of it."""

    system: str
    stimulus: str
    level: int = 0
    failure: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def source_record(models: Sequence[str], class_names: Sequence[str], **data: Any) -> SourceRecord:
    """A source of these models; `data` says more of its images."""
    known = {"name": "test set", "fingerprint": "d" * 64, "size": [32, 32], **data}
    named = {name: ModelRecord(fingerprint="f" * 64, capabilities=["probabilities"]) for name in models}
    return SourceRecord(data=DataRecord(class_names=list(class_names), **known), models=named)


def run_record(source: SourceRecord, study: str = "signs", **changes: Any) -> RunRecord:
    """A run of one source without any case; `changes` are further fields of the record, several sources among them."""
    fixed = {"seed": 0, "created": "2026-03-01T12:30:00+00:00", "environment": ENVIRONMENT, "criteria": []}
    settings = {"batch": 128, "chunk": 512, "size": [32, 32]}
    empty: dict[str, Any] = {"cases": {}, "protocols": {}, "files": {}, "settings": settings, "sources": {"": source}}
    return RunRecord(study=study, **fixed | empty | changes)


def with_cases(record: RunRecord, protocol: str, shown: Sequence[Shown]) -> RunRecord:
    """The record with one more protocol, which asks for these cases."""
    cases, asked = dict(record.cases), []
    for place, case in enumerate(shown):
        key = f"{protocol}-{place}"
        stimulus = StimulusRecord(data="d", name=case.stimulus, level=case.level, parameters={}, repeat=0, seed=0)
        status: Any = "failed" if case.failure else "done"
        folder = f"readouts/{key}"
        cases[key] = CaseRecord(
            folder=folder, system=case.system, stimulus=stimulus, status=status, reason=case.failure
        )
        asked.append(AskedCase(case=key, system=case.system, labels=dict(case.labels)))
    part = ProtocolRecord(sources={"": SourcePart(cases=asked)})
    return record.model_copy(update={"cases": cases, "protocols": {**record.protocols, protocol: part}})


def network_record(system: str, seed: int = 0, **competence: float) -> ArtifactRecord:
    """A network that the run trained, and how good it is."""
    return ArtifactRecord(
        system=system, builder="train cnn", parameters={"epochs": 4}, seed=seed, competence=competence
    )


def with_networks(record: RunRecord, networks: Mapping[str, ArtifactRecord]) -> RunRecord:
    """The record with these artifacts, each of which belongs to the model of its name."""
    for name, artifact in networks.items():
        record.first.models[artifact.system].artifacts.append(name)
    return record.model_copy(update={"artifacts": dict(networks)})


def changed(run: Path, change: Callable[[RunRecord], RunRecord]) -> Path:
    """Write the record of a run anew, with a change."""
    folder = RunFolder(run)
    folder.write_record(change(folder.record(changed_too=True)))
    return run


def record_anew(run: Path) -> Path:
    """Have run.json say of every file what it is now: what a test has changed is as if the run had been made so."""
    return changed(run, lambda record: record)
