"""Readers of what users write: studies, criteria and the names of plugins."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import yaml

from fuzzing.annotation_readers import yaml_bytes
from fuzzing.mutations import TEXTS, as_json, encode, paths, spoil_bytes, spoil_value
from fuzzing.readers import Files, Reader
from roadworthy.api import prepare
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.record import PluginRecord
from roadworthy.core.validation import validated
from roadworthy.plugins import load_plugins, name_plugins, plugin_problems
from roadworthy.study import load_study
from roadworthy.verdict import load_criteria
from samples import CRITERIA, fill, study

STUDY = study(
    seed=3,
    size="8x8",
    batch=4,
    data={"test": {"npz": "data.npz", "limit": 9}, "classes": "classes.txt"},
    models={"m": {"onnx": "model.onnx", "range": "0-1", "layout": "nchw"}, "n": "logits.onnx"},
    protocols={
        "classification": {"shifts": ["grey", {"name": "fog", "levels": {1: {"factor": 0.1}}}], "repeats": 1},
        "ood": {"repeats": 1},
    },
    outliers={"a": "uniform_noise", "s": {"builtin": "scenery", "n": 4}},
    monitors={"msp": {}, "far": {"monitor": "energy", "temperature": 2.0}},
    criteria=CRITERIA,
)
OD_TEST = {
    **{"data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]}, "models": {"m": "model.onnx"}, "monitors": ["msp"]},
    **{"outliers": {"a": "uniform_noise", "b": "normal_noise"}, "protocols": {"od_test": {"resamples": 10}}},
}
MONITORING = {
    **{"data": {"test": "data.npz", "validation": "data.npz"}, "models": {"m": "model.onnx"}},
    **{"monitors": {"msp": {}}, "outliers": {"a": "uniform_noise"}, "protocols": {"monitoring": {}}},
}
STUDIES = (STUDY, OD_TEST, MONITORING, study(protocols={"dependability": {"transformers": ["grey"]}}))
CRITERION = {**CRITERIA[0], "over": "worst", "confidence": 0.9, "min_groups": 3, "hazard": "x"}
KEYS = sorted({step for path in paths([*STUDIES, CRITERION]) for step in path if isinstance(step, str)})
YAMLISH = "ab:-[]{},&*!|>%@`'\"#?\\ \n\t0.~<=_é\x85\ufeff"
TAGS = (
    "int",
    "float",
    "bool",
    "null",
    "timestamp",
    "binary",
    "set",
    "omap",
    "pairs",
    "map",
    "seq",
    "str",
    "python/name:os.system",
)
TAGGED = ("''", "{}", "[]", "2001-99-99", "1:99", "0b", "0x", "._", "[{a: b}]", "9" * 5000, "[" * 3000)


def spoil_study(random: Random, valid: Files) -> dict[str, bytes]:
    kind = random.randrange(8)
    if kind == 0:
        content = encode("".join(random.choices(YAMLISH, k=random.randrange(60))))
    elif kind == 1:
        content = encode(f"name: !!{random.choice(TAGS)} {random.choice(TAGGED)}\n")
    elif kind <= 3:
        content = spoil_bytes(random, valid["s.yaml"])
    else:
        content = yaml_bytes(spoil_value(random, random.choice(STUDIES), KEYS))
    return {"s.yaml": content}


def spoil_whole_study(random: Random, valid: Files) -> dict[str, bytes]:
    return {"s.yaml": yaml_bytes(spoil_value(random, random.choice(STUDIES), KEYS))}


def read_study(folder: Path) -> None:
    load_study(folder / "s.yaml")


def read_whole_study(folder: Path) -> None:
    loaded, base = load_study(folder / "s.yaml")
    prepare(loaded, base=base)


def valid_study(folder: Path) -> Files:
    fill(folder)
    return {"s.yaml": yaml.safe_dump(STUDY).encode(), "criteria.yaml": (folder / "criteria.yaml").read_bytes()}


def spoil_criteria(random: Random, valid: Files) -> dict[str, bytes]:
    if random.random() < 0.2:
        return {"criteria.yaml": spoil_bytes(random, yaml.safe_dump([CRITERION]).encode())}
    keyed = {"criteria": [CRITERION], "questions": ["robust"], "decision": {"by": "me", "on": "2026-01-01"}}
    value = [CRITERION, {**CRITERION, "id": "B", "at_most": 0.5}] if random.random() < 0.7 else keyed
    return {"criteria.yaml": yaml_bytes(spoil_value(random, value, [*CRITERION, "at_most", "where", "margin", *KEYS]))}


def read_criteria(folder: Path) -> None:
    load_criteria(folder / "criteria.yaml")
    prepare(load_study(folder / "study.yaml")[0], base=folder)


# plugins: named in a study or a run with the SHA-256 of their files

PLUGINS = [{"plugin": "my.py", "files": {"my.py": "0" * 64}}, {"plugin": "package.module", "files": {}}]


def spoil_plugins(random: Random, valid: Files) -> dict[str, bytes]:
    value = spoil_value(random, PLUGINS, ["plugin", "files", "my.py", "os.path", *TEXTS])
    code = spoil_bytes(random, valid["my.py"])
    return {"plugins.json": as_json(value), "my.py": code}


def read_plugins(folder: Path) -> None:
    content = json.loads((folder / "plugins.json").read_text(errors="surrogateescape"))
    entries = content if isinstance(content, list) else [content]
    refusals: list[RoadworthyError] = []
    records = []
    for entry in entries:
        try:
            records.append(validated(PluginRecord, entry, "plugin"))
        except RoadworthyError as error:
            refusals.append(error)
    named = name_plugins(records, folder, (), "run")
    refusals += plugin_problems(named)
    load_plugins(named, trust=False)
    if refusals:
        raise refusals[0]


def valid_plugins(folder: Path) -> Files:
    code = b"import roadworthy as rw\nraise SystemExit('this code must not run')\n"
    (folder / "my.py").write_bytes(code)
    return {"my.py": code}


READERS = [
    Reader("study file", ("study.py", "core/validation.py"), valid_study, spoil_study, read_study),
    Reader(
        "whole study",
        ("study.py", "preparing.py", "opening.py", "engine/plan.py", "models/__init__.py", "monitors/opening.py"),
        valid_study,
        spoil_whole_study,
        read_whole_study,
    ),
    Reader(
        "criteria",
        ("verdict/criteria.py", "verdict/thresholds.py", "verdict/questions.py"),
        valid_study,
        spoil_criteria,
        read_criteria,
    ),
    Reader("plugins of a run", ("plugins.py",), valid_plugins, spoil_plugins, read_plugins),
]
