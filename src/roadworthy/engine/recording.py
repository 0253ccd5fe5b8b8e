"""What run.json says of the nodes of a graph and of the data and models of a source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from roadworthy.core.hashing import canonical_json
from roadworthy.core.record import (
    ArtifactRecord,
    CaseRecord,
    DataRecord,
    ModelRecord,
    SourceRecord,
    StimulusRecord,
)
from roadworthy.core.roles import Dataset, Model, leaves
from roadworthy.data import OpenedDataset
from roadworthy.engine.ledger import Outcome
from roadworthy.engine.plan import ArtifactNode, Bench, CaseNode, Graph, Plan
from roadworthy.models import MODELS, StoredPredictions
from roadworthy.models.base import Adapter


def node_records(graph: Graph, outcome: Outcome) -> dict[str, Any]:
    """The `cases` and the `artifacts` of a graph by their hash, each with how it ended."""

    def ended(node: str) -> dict[str, Any]:
        return {"status": "failed", "reason": outcome.failures[node]} if node in outcome.failures else {}

    def of_case(node: CaseNode) -> CaseRecord:
        case = node.planned.case
        return CaseRecord(
            folder=f"readouts/{case.key}",
            system=case.system,
            kind=node.planned.system.kind,
            stimulus=StimulusRecord(**case.stimulus.config()),
            **ended(case.hash),
        )

    def of_artifact(node: ArtifactNode) -> ArtifactRecord:
        recipe = node.parts[0].recipe
        return ArtifactRecord(
            system=node.name,
            builder=recipe.builder,
            parameters=json.loads(canonical_json(dict(recipe.parameters))),
            seed=recipe.seed,
            competence=outcome.built.get(node.hash, {}).get("competence", {}),
            **ended(node.hash),
        )

    cases = {hash_: of_case(case) for hash_, case in graph.cases.items()}
    return {"cases": cases, "artifacts": {hash_: of_artifact(node) for hash_, node in graph.artifacts.items()}}


def source_record(
    bench: Bench,
    plan: Plan,
    seen: Mapping[str, Sequence[str]],
    changes: Mapping[str, float],
    notes: Sequence[str] = (),
    found: Mapping[str, Sequence[str]] | None = None,
) -> SourceRecord:
    """The data and models of a source.

    seen     the ids of images that are training images too, of the `test` and `validation` data and of recorded sets
    changes  by how much the answers of a model differ when it is asked again, by the model's name
    notes    what a reader must know besides what the data itself says
    found    what the check before the run found of a model, by the model's name
    """
    return SourceRecord(
        data=_data_record(
            bench.data,
            notes,
            seen=[*seen.get("test", ())],
            validation_seen=[*seen.get("validation", ())],
            recorded={name: _data_record(own, seen=[*seen.get(name, ())]) for name, own in bench.recorded.items()},
        ),
        models={
            name: ModelRecord(
                fingerprint=bench.fingerprint(model),
                **_described(model, bench.section.models.get(name) if bench.section else None),
                capabilities=sorted(model.capabilities),
                changes_by=changes.get(name, 0.0),
                found=[*(found or {}).get(name, ())],
                isolated=all(leaf.isolated for leaf in leaves(model)),
                artifacts=_artifacts_of(plan, bench.source, name),
            )
            for name, model in bench.models.items()
        },
    )


def _data_record(data: Dataset, notes: Sequence[str] = (), **known: Any) -> DataRecord:
    assert isinstance(data, OpenedDataset)
    return DataRecord(
        name=data.name,
        fingerprint=data.fingerprint(),
        images=len(data),
        groups=len(set(data.groups)),
        class_names=list(data.class_names),
        size=list(data.size),
        bad_images=[list(map(str, bad)) for bad in data.bad_images],
        notes=[*data.notes, *notes],
        **known,
    )


def _described(model: Model, entry: Any) -> dict[str, Any]:
    """Where a model comes from, given its entry in the study, and what its adapters say of input and outputs."""
    known = [model] if model.origin.kind else [leaf for leaf in leaves(model) if leaf.origin.kind]
    kinds = [kind for kind in entry if kind in MODELS] if isinstance(entry, Mapping) else []
    details = [leaf.describe() for leaf in leaves(model) if isinstance(leaf, Adapter | StoredPredictions)]
    texts = {key: [str(own[key]) for own in details if key in own] for key in ("input", "outputs")}
    return {
        "origin": " and ".join(dict.fromkeys(kinds or [part.origin.kind for part in known])),
        "files": {name: sha256 for part in known for name, sha256 in part.origin.files.items()},
        **{key: "; ".join(dict.fromkeys(values)) for key, values in texts.items()},
    }


def _artifacts_of(plan: Plan, source: str, model: str) -> list[str]:
    """The hashes of the artifacts that a model of a source is made of, in all of its cases."""
    own = [planned.system for planned in plan.cases if (planned.source, planned.case.system) == (source, model)]
    networks = {id(system): system for system in own if system.kind == "model"}
    return list(dict.fromkeys(part.recipe.hash for system in networks.values() for part in system.requires()))
