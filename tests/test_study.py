"""The study file: defaults, and one clear sentence for every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roadworthy.api import prepare
from roadworthy.core.errors import InputError
from roadworthy.study import load_study, parse_study
from tiny import study, write_study

SMALLEST: dict[str, Any] = {"data": {"test": "d"}, "models": {"m": "m.onnx"}}


def test_everything_but_data_and_model_has_a_default() -> None:
    parsed = parse_study(SMALLEST, "study")
    assert parsed.protocols.classification is not None
    assert len(parsed.protocols.classification.shifts) == 10
    assert parsed.protocols.classification.levels == [1, 2, 3, 4, 5]
    assert parse_study({**SMALLEST, "protocols": {"classification": None}}, "study") == parsed


def test_a_study_survives_its_own_yaml(tmp_path: Path) -> None:
    parsed, _ = load_study(write_study(tmp_path, criteria=[{"id": "A", "metric": "accuracy", "at_least": 0.5}]))
    (tmp_path / "again.yaml").write_text(parsed.to_yaml())
    assert load_study(tmp_path / "again.yaml")[0] == parsed


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"modles": {}}, "unknown key 'modles': did you mean 'models'"),
        ({"data": {"tset": "d", "test": "d"}}, "unknown key 'data.tset': did you mean 'test'"),
        ({"protocols": {"classification": {"lvels": [1]}}}, "unknown key .*lvels.*did you mean 'levels'"),
        ({"protocols": {"clasification": {}}}, "unknown key 'protocols.clasification': did you mean 'classification'"),
        ({"data": {"test": "d", "ood": {"a": "b.npz"}}}, "data: .*write outliers: instead of data: ood:"),
        ({"models": {}}, "models"),
        ({"size": "64 by 64"}, "HEIGHTxWIDTH"),
        ({"size": "64x"}, "HEIGHTxWIDTH"),
        ({"size": "0x64"}, "size"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"protocols": {"classification": {"levels": []}}}, "levels"),
        ({"protocols": {"classification": {"levels": [1, 1]}}}, "named twice"),
        ({"protocols": {"classification": {"shifts": []}}}, "shifts"),
        ({"batch": 0}, "batch"),
        ({"protocols": {"classification": {"repeats": 0}}}, "repeats"),
        ({"protocols": {"classification": {"levels": [0]}}}, "levels"),
        ({"protocols": {"classification": {"shifts": [{"name": "fog", "levels": {0: {"factor": 0.1}}}]}}}, "levels"),
        ({"protocols": {"classification": {"shifts": ["fog", "fog"]}}}, "named twice"),
        ({"models": {"a\nb": "m"}}, "not a valid name for a model"),
    ],
)
def test_mistakes_are_one_sentence(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        parse_study({**SMALLEST, **changes}, "study s.yaml")
    assert str(caught.value).startswith("study s.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("named", [[], ["a", "a"]])
def test_a_protocol_names_distinct_sources_or_none(named: list[str]) -> None:
    content = {"sources": {"a": SMALLEST, "b": SMALLEST}, "protocols": {"classification": {"sources": named}}}
    with pytest.raises(InputError, match=r"classification\.sources must name different sources, at least one; leave"):
        parse_study(content, "study")


@pytest.mark.parametrize(
    ("shifts", "complaint"),
    [
        (["fgo"], "unknown shift 'fgo': did you mean 'fog'"),
        ([{"name": "fog", "levels": {1: {"strenght": 1}}}], "no parameter"),
    ],
)
def test_unknown_shifts_and_parameters(tmp_path: Path, shifts: list[Any], complaint: str) -> None:
    broken = study(tmp_path, protocols={"classification": {"shifts": shifts}})
    with pytest.raises(InputError, match=complaint):
        prepare(parse_study(broken, "study"))


@pytest.mark.parametrize(
    ("criterion", "complaint"),
    [
        ({"metric": "acuracy"}, "did you mean 'accuracy'"),
        ({"where": {"shfit": "fog"}}, "did you mean 'shift'"),
        ({"where": {"protocol": "clasification"}}, "did you mean 'classification'"),
        ({"where": {"protocol": "ood"}}, "unknown protocol 'ood'"),
        ({"where": {"protocol": ["classification", "ood"]}}, "must name one protocol"),
        ({"where": {"shift": "snow"}}, r"asks for shift 'snow', but the run has"),
        ({"where": {"shift": "fog", "level": 3}}, "asks for level 3"),
    ],
)
def test_criteria_are_matched_before_anything_runs(tmp_path: Path, criterion: dict[str, Any], complaint: str) -> None:
    asked = {"id": "A", "metric": "accuracy", "at_least": 0.5, **criterion}
    with pytest.raises(InputError, match=complaint):
        prepare(parse_study(study(tmp_path, criteria=[asked]), "study"))


def test_levels_of_ones_own(tmp_path: Path) -> None:
    own = {"shifts": [{"name": "noise", "levels": {1: {"factor": 0.05}, 2: {"factor": 0.1}}}, "fog"], "levels": [4]}
    prepared = prepare(parse_study(study(tmp_path, protocols={"classification": own}), "study"))
    shown = {(s.stimulus.name, s.stimulus.level): dict(s.stimulus.parameters) for s in prepared.plan.stimuli.values()}
    assert set(shown) == {("none", 0), ("noise", 1), ("noise", 2), ("fog", 4)}
    assert shown["noise", 1] == {"factor": 0.05}


def test_class_counts_must_agree(tmp_path: Path) -> None:
    from roadworthy.models import load_model

    model = load_model(lambda images: [[0.5, 0.5]] * len(images), name="two", num_classes=2, version="1")
    with pytest.raises(InputError, match=r"answers 2 classes, but data set .* has 14"):
        prepare(parse_study(study(tmp_path, models={"two": "<>"}), "study"), models={"two": model})
