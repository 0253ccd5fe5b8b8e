"""Runs of schema 1: what their run.json says, in the present form. They are read, verified and reported, not continued.

Their cases belong to a protocol each and carry tags; what is not an answer of a model lies in artifacts; a run of a
`kind` has monitors with representations in place of cases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KINDS = {"inputs": "conditions", "heat_maps": "heat maps"}
OF_DATA = ("name", "class_names", "fingerprint", "images", "groups", "size", "bad_images", "notes")


def from_first_schema(content: dict[str, Any], run: Path) -> dict[str, Any]:
    """A record of schema 1 in the present form; `run` is its folder."""
    kept = ("schema", "study", "seed", "created", "finished", "environment", "earlier_environments", "settings")
    record: dict[str, Any] = {key: content[key] for key in (*kept, "criteria", "files") if key in content}
    record |= {"cases": {}, "artifacts": {}, "protocols": {}}
    for built in content.get("artifacts", ()):
        record["artifacts"][built["hash"]] = {key: value for key, value in built.items() if key != "hash"}
    data = {key: content["data"][key] for key in OF_DATA if key in content["data"]}
    if "kind" in content:
        return record | _of_kind(content, data)
    models = {name: model | _networks(content, name) for name, model in content["models"].items()}
    record["sources"] = {"": {"data": data, "models": models}}
    for case in content["cases"]:
        _add_case(record, case, content.get("artifact_failures", {}), run)
    for name, reasons in content.get("left_out", {}).items():
        _part(record, name)["left_out"] = reasons
    return record


def _networks(content: dict[str, Any], system: str) -> dict[str, Any]:
    return {"artifacts": [built["hash"] for built in content.get("artifacts", ()) if built["system"] == system]}


def _part(record: dict[str, Any], protocol: str) -> dict[str, Any]:
    entry = record["protocols"].setdefault(protocol, {"settings": {}, "sources": {"": {"cases": [], "context": {}}}})
    part: dict[str, Any] = entry["sources"][""]
    return part


def _add_case(record: dict[str, Any], case: dict[str, Any], lost: dict[str, str], run: Path) -> None:
    """A case, and as cases of their own the artifacts that its tags name by their role."""
    part, tags = _part(record, case["protocol"]), dict(case.get("tags", {}))
    facts = {key: case[key] for key in ("system", "stimulus", "status", "reason")}
    record["cases"][case["hash"]] = {"folder": f"readouts/{case['protocol']}/{case['key']}", **facts}
    noted = {key: json.loads(tags.pop(key)) for key in ("layers", "reasons", "scopes", "refused") if key in tags}
    probes = {key: tags.pop(key) for key in [*tags] if key in KINDS or key.startswith("layer ")}
    part["cases"].append({"case": case["hash"], "system": case["system"], "labels": tags})
    if not noted:
        return
    part["context"].setdefault("models", {})[case["system"]] = {key: noted[key] for key in noted if key != "layers"}
    for label, built in probes.items():
        kind, _, layer = label.partition(" ")
        failed = {"status": "failed", "reason": lost[built]} if built in lost else {}
        system = "data" if label == "inputs" else case["system"]
        role = KINDS.get(kind, kind)
        stored = {"folder": f"artifacts/{built}", "system": system, "kind": role, "stimulus": case["stimulus"]}
        record["cases"].setdefault(built, stored | failed)
        labels = {"role": role, **({"layer": layer} if layer else {})}
        asked_case = {"case": built, "system": system, "labels": labels}
        if asked_case not in part["cases"]:
            part["cases"].append(asked_case)
        if label == "inputs":
            manifest = json.loads((run / "artifacts" / built / "artifact.json").read_text(encoding="utf-8"))
            part["context"]["resolved"] = {k: v for k, v in manifest["parameters"].items() if k != "algorithm"}


def _of_kind(content: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The sources, cases and protocol of a run of a kind: a case per monitor and set, and one per part of the data."""
    kind = content["kind"]
    cases: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for name, source in content[kind]["sources"].items():
        model, architecture = content["models"][name] | _networks(content, name), source["architecture"]
        sources[name] = {"data": data | {"name": name, "size": source["size"][:2]}, "models": {architecture: model}}
        asked_cases = []
        stimulus = {"name": "none", "level": 0, "parameters": {}, "repeat": 0, "seed": content["seed"]}
        for part, key in source["answers"].items():
            cases[key] = {"folder": f"representations/{key}", "system": name, "stimulus": stimulus | {"data": part}}
            labels = {"role": "correct", "set": part, "model": architecture}
            asked_cases.append({"case": key, "system": name, "labels": labels})
        for label, monitor in source["monitors"].items():
            for set_name, key in monitor["keys"].items():
                shown = stimulus | {"data": source["fingerprints"][set_name]}
                cases[key] = {"folder": f"representations/{key}", "system": label, "kind": "monitor", "stimulus": shown}
                labels = {"role": "monitor", "set": set_name, "artifact": monitor["artifact"], "model": architecture}
                asked_cases.append({"case": key, "system": label, "labels": labels})
        context = {"architectures": {architecture: architecture}, "networks": {architecture: model["artifacts"]}}
        context_keys = ("classes", "size", "near", "overlap", "images", "left_out", "excluded", "failed")
        context |= {key: source[key] for key in context_keys}
        context["monitors"] = {
            label: {key: monitor[key] for key in ("monitor", "differs_from_paper") if key in monitor}
            for label, monitor in source["monitors"].items()
        }
        if source.get("seen"):
            sources[name]["data"]["seen"] = [source["seen"]["first"]] * source["seen"]["images"]
        parts[name] = {"cases": asked_cases, "context": context}
    settings = content[kind]["aim"] | {"resamples": content[kind]["resamples"]}
    return {"sources": sources, "cases": cases, "protocols": {kind: {"settings": settings, "sources": parts}}}
