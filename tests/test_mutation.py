"""Damages do what they say, and a study is told which of them its criteria catch: missed ones first."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import roadworthy as rw
from commands import call
from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.damages import DAMAGES, Chosen, default_damages, make_damage
from roadworthy.data import BuiltinDataset, Opening
from roadworthy.demo import CLASSIFIER
from roadworthy.models import align
from roadworthy.mutation import outcomes, running
from roadworthy.mutation.demo import demo_study
from roadworthy.mutation.outcomes import DamageResult, Turned, in_order, nearest, outcome_of, turned
from roadworthy.statistics import Estimate
from roadworthy.verdict import Criterion, Measurement, judge

SIGNS = BuiltinDataset("signs", Opening(name="signs", size=(32, 32)), n=70)
BATCH = SIGNS.batch(slice(None))
ENTRY = {"onnx": str(CLASSIFIER)}


def damaged(damage: str | dict[str, Any], entry: Any = ENTRY, **settings: Any) -> Any:
    model = rw.load_model({"damaged": entry, "damage": damage}, name="m", **settings)
    return align(model, SIGNS.class_names)


def probabilities(model: Any, batch: Batch = BATCH) -> Any:
    return model.answer(batch, 32).probabilities


UNDAMAGED = rw.load_model(ENTRY)
CLEAN = probabilities(UNDAMAGED)
PAIR = (SIGNS.class_names[3], SIGNS.class_names[7])


def test_a_copy_answers_as_the_model_does_under_another_name() -> None:
    copy = damaged("undamaged")
    assert np.array_equal(probabilities(copy), CLEAN)
    assert copy.fingerprint() != UNDAMAGED.fingerprint()
    assert copy.capabilities == UNDAMAGED.capabilities


def test_a_swapped_pair_is_two_columns_in_the_order_of_the_data_whatever_the_models_is() -> None:
    swapped = probabilities(damaged({"damage": "swapped_pair", "classes": [*PAIR]}))
    expected = CLEAN.copy()
    expected[:, [3, 7]] = CLEAN[:, [7, 3]]
    assert np.array_equal(swapped, expected)
    names = [*reversed(SIGNS.class_names)]  # as if its columns stood for these
    other = rw.load_model({**ENTRY, "classes": names}, name="m")
    of_other = damaged({"damage": "swapped_pair", "classes": [*PAIR]}, {**ENTRY, "classes": names})
    expected = probabilities(align(other, SIGNS.class_names))
    expected[:, [3, 7]] = expected[:, [7, 3]]
    assert np.array_equal(probabilities(of_other), expected)


def test_a_class_is_never_answered_and_its_probability_goes_to_the_others() -> None:
    answers = probabilities(damaged({"damage": "never_answered", "classes": [PAIR[0]]}))
    assert not answers[:, 3].any()
    assert answers.sum(axis=1) == pytest.approx(1, abs=1e-6)
    left = np.delete(CLEAN, 3, axis=1)
    sure = left.sum(axis=1) > 1e-3
    expected = left[sure] / left[sure].sum(axis=1, keepdims=True)
    assert np.delete(answers, 3, axis=1)[sure] == pytest.approx(expected, abs=1e-5)


def test_a_temperature_changes_how_sure_answers_are_and_not_which() -> None:
    for temperature in (0.2, 5.0):
        model = damaged({"damage": "wrong_confidence", "temperature": temperature})
        powers = CLEAN.astype(float) ** (1 / temperature)
        assert probabilities(model) == pytest.approx(powers / powers.sum(axis=1, keepdims=True), abs=1e-5)
        assert "input_gradient" not in model.capabilities


def test_inputs_are_damaged_as_they_say() -> None:
    images = BATCH.images.astype(int)
    ranges = {"half": images // 2, "raised": 128 + images // 2, "inverted": 255 - images}
    for name, expected in ranges.items():
        shown = make_damage({"damage": "wrong_range", "range": name}).batch(BATCH)
        assert np.array_equal(shown.images, expected)
    assert np.array_equal(make_damage("swapped_colours").batch(BATCH).images, images[..., [2, 1, 0]])
    dead = make_damage({"damage": "dead_pixels", "share": 0.1}).batch(BATCH).images
    lost = (dead != BATCH.images).any(axis=(0, 3))
    assert lost.sum() <= round(0.1 * 32 * 32)
    assert not dead[:, lost].any()
    assert lost.sum() > 95, "all but those that were black already"
    blurred = make_damage({"damage": "blurred_lens", "level": 5}).batch(BATCH).images
    assert np.abs(np.diff(blurred.astype(int), axis=2)).mean() < np.abs(np.diff(images, axis=2)).mean() / 1.5
    assert np.array_equal(make_damage({"damage": "blurred_lens", "level": 5}).batch(BATCH).images, blurred)


def kernels(model: Any) -> dict[str, Any]:
    graph = model._graph.graph
    return {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer if len(t.dims) > 1}


def test_noise_in_onnx_weights_has_the_size_it_says_and_nothing_else_changes() -> None:
    before = kernels(UNDAMAGED)
    noisy = damaged({"damage": "weight_noise", "sigma": 0.1})
    after = kernels(noisy.model)
    assert before.keys() == after.keys()
    ratios = [
        np.sqrt(np.mean((after[name] - weights) ** 2) / np.mean(weights**2))
        for name, weights in before.items()
        if weights.size > 400
    ]
    assert ratios
    assert ratios == pytest.approx([0.1] * len(ratios), rel=0.15)
    again, other = (damaged({"damage": "weight_noise", "sigma": 0.1, "seed": seed}) for seed in (0, 1))
    assert noisy.fingerprint() == again.fingerprint() != other.fingerprint()
    assert np.array_equal(probabilities(noisy), probabilities(again))
    assert np.array_equal(probabilities(damaged({"damage": "weight_noise", "sigma": 0.0})), CLEAN)
    right = [
        (probabilities(damaged({"damage": "weight_noise", "sigma": s})).argmax(1) == BATCH.labels).mean()
        for s in (0.02, 1.0)
    ]
    assert right[0] > 0.9 > right[1] + 0.3


def test_noise_in_torch_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 14))\n"
    )
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 14))
    torch.save(layers.state_dict(), tmp_path / "net.pth")
    entry = {"torch": str(tmp_path / "net.pth"), "arch": f"{tmp_path / 'net.py'}:make", "size": "32x32"}
    settings: dict[str, Any] = {"trust": True}
    plain = damaged("undamaged", entry, **settings)
    noisy = damaged({"damage": "weight_noise", "sigma": 0.2}, entry, **settings)
    before, after = (model.model.module[1] for model in (plain, noisy))
    change = (after.weight - before.weight).detach().numpy()
    assert np.sqrt(np.mean(change**2) / np.mean(before.weight.detach().numpy() ** 2)) == pytest.approx(0.2, rel=0.02)
    assert torch.equal(after.bias, before.bias)
    assert not np.array_equal(probabilities(plain), probabilities(noisy))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("rust", "unknown damage 'rust'"),
        ({"damage": "weight_noise", "sigmas": 1}, "unknown parameter of damage weight_noise 'sigmas': did you mean"),
        ({"damage": "weight_noise", "sigma": -1}, "sigma"),
        ({"damage": "weight_noise", "sigma": "much"}, "weight_noise damage setting sigma cannot be 'much'"),
        ({"sigma": 1}, "a damage is a name, or a mapping with the key damage"),
        ({"damage": "wrong_range", "range": "odd"}, "damage wrong_range: range is half, raised, inverted, not 'odd'"),
        ({"damage": "blurred_lens", "shift": "fogg"}, "unknown shift 'fogg': did you mean 'fog'"),
        ({"damage": "swapped_pair", "classes": ["stop", "stop"]}, "is about 2 different classes"),
        ({"damage": "swapped_pair", "classes": ["stop", "halt"]}, "unknown class of damage swapped_pair 'halt'"),
    ],
)
def test_bad_damages_are_one_sentence(damage: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=r".") as error:
        damaged(damage)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_that_cannot_be_reached_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not possible for a model of kind reference: only for ONNX and torch"):
        damaged("weight_noise", {"reference": "baseline"})


def test_every_damage_has_variants_and_random_ones_are_drawn_as_often_as_asked() -> None:
    variants = default_damages(seeds=2, chosen=Chosen(PAIR))
    assert {one.name for one in variants} == {*DAMAGES} - {"undamaged"}
    assert len({one.slug for one in variants}) == len(variants)
    assert len([one for one in variants if one.name == "weight_noise"]) == 10
    (swapped,) = [one for one in variants if one.name == "swapped_pair"]
    assert swapped.label == f"{PAIR[0]} and {PAIR[1]} swapped"
    for one in variants:
        entry = one.entry(ENTRY)
        assert make_damage(entry["damage"]) == one


# What came of damages, by construction


def findings(**bounds: tuple[float, float, float]) -> Any:
    """Findings of criteria `at_least 0.9`, by id, from value, lower and upper bound."""
    criteria = [Criterion(id=name, metric="accuracy", at_least=0.9) for name in bounds]

    def measured(criterion: Criterion, confidence: float) -> list[Measurement]:
        return [Measurement({}, Estimate(*bounds[criterion.id], n=100, groups=100))]

    return judge(criteria, measured).findings


WELL, BAD, OPEN = (0.95, 0.92, 0.98), (0.5, 0.4, 0.6), (0.92, 0.88, 0.95)


def test_caught_is_what_turns_from_pass_to_fail_and_inconclusive_is_told_apart() -> None:
    before = findings(a=WELL, b=WELL, c=BAD)
    assert outcome_of(turned(before, findings(a=WELL, b=WELL, c=BAD))) == "missed"
    lost = turned(before, findings(a=OPEN, b=BAD, c=BAD))
    assert [(one.criterion, one.status) for one in lost] == [("b", "fail"), ("a", "inconclusive")]
    assert outcome_of(lost) == "caught"
    assert outcome_of(turned(before, findings(a=OPEN, b=WELL, c=WELL))) == "only inconclusive"
    assert outcome_of(turned(before, findings(a=WELL, b=WELL, c=BAD))) == "missed", "c failed before"


def test_the_nearest_criterion_is_the_one_with_the_least_room_left() -> None:
    before = findings(a=WELL, b=WELL, c=BAD)
    found = nearest(before, findings(a=(0.95, 0.91, 0.98), b=WELL, c=(0.95, 0.9001, 0.98)))
    assert found is not None
    assert (found.criterion, found.distance) == ("a", pytest.approx(0.01))
    assert found.sentence() == "nearest: a, whose bound is 0.01 on the safe side of its threshold"
    assert nearest(findings(a=BAD), findings(a=BAD)) is None


def result(name: str, outcome: Any, drop: float) -> DamageResult:
    return DamageResult(name, name, name, {}, outcome, 1 - drop, drop)


def test_missed_damages_come_first_and_the_largest_on_top() -> None:
    given = [
        result("e", "caught", 0.9),
        result("b", "missed", 0.01),
        result("f", "not possible", math.nan),
        result("d", "only inconclusive", 0.3),
        result("c", "missed", math.nan),
        result("a", "missed", 0.2),
    ]
    assert [one.damage for one in in_order(given)] == ["a", "b", "c", "d", "e", "f"]
    assert [one.is_large for one in in_order(given)] == [True, False, False, True, True, False]
    assert result("g", "missed", 0.99 - 0.94).is_large, "5 points, rounded"


# Whole studies


def study(**changes: Any) -> dict[str, Any]:
    content = demo_study()
    content["data"]["test"]["n"] = 420
    content["protocols"]["classification"] = {"shifts": ["fog"], "levels": [2], "repeats": 1, "conditions": []}
    content["criteria"]["criteria"] = [c for c in content["criteria"]["criteria"] if c["id"] in ("TS-1", "TS-10")]
    content["criteria"]["criteria"][0]["at_least"] = 0.9
    content["criteria"]["criteria"][1]["at_most"] = 0.06
    return content | changes


TRIED = ["swapped_colours", {"damage": "weight_noise", "sigma": 0.02}]


@pytest.fixture(scope="module")
def mutation(tmp_path_factory: pytest.TempPathFactory) -> rw.Mutation:
    out = tmp_path_factory.mktemp("mutation")
    return rw.mutate(study(), out=out, damages=TRIED, progress=rw.no_progress)


def test_a_large_damage_is_caught_a_small_one_missed_and_the_copy_is_neither(mutation: rw.Mutation) -> None:
    assert [(one.damage, one.outcome) for one in mutation.results] == [
        ("weight_noise", "missed"),
        ("swapped_colours", "caught"),
    ]
    missed, caught = mutation.results
    assert mutation.copy.outcome == "missed"
    assert mutation.copy.drop == 0
    assert mutation.accuracy > 0.98
    assert caught.drop > 0.4
    assert caught.caught_by == "TS-1, TS-10"
    assert missed.nearest is not None
    assert missed.drop < 0.02
    assert mutation.criteria == {"TS-1": "pass", "TS-10": "pass"}
    assert mutation.ok
    assert mutation.lines()[-1].startswith("all 1 damages that cost 5 points of clean accuracy or more are caught")
    assert rw.open_run(caught.run).verify() == []


def test_what_was_run_is_not_run_again(mutation: rw.Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("it is there already")

    monkeypatch.setattr(running, "execute", refuse)
    again = rw.mutate(study(), out=mutation.folder, damages=TRIED, progress=rw.no_progress)
    assert again.results == mutation.results
    with pytest.raises(AssertionError, match="there already"):
        rw.mutate(study(), out=mutation.folder, damages=["never_answered"], progress=rw.no_progress)


def test_the_page_and_the_json_say_the_same(mutation: rw.Mutation) -> None:
    page, record = mutation.write()
    stored = json.loads(record.read_text())
    assert stored["ok"]
    assert [one["outcome"] for one in stored["damages"]] == ["missed", "caught"]
    text = page.read_text()
    assert text.index("2% noise in the weights") < text.index("red and blue swapped")
    assert "<script" not in text
    hostile = replace(mutation, model="<i>x", notes=("<b>&",))
    hostile.write()
    assert "<i>x" not in page.read_text()
    mutation.write()


def test_what_is_not_caught_makes_the_exit_code_1(mutation: rw.Mutation) -> None:
    large = replace(mutation.results[0], drop=0.05)
    assert not replace(mutation, results=(large,)).ok
    assert "1 of 1 damages that cost 5 points" in replace(mutation, results=(large,)).sentence()
    caught = replace(mutation.copy, outcome="caught", turned=(Turned("TS-1", "fail", ""),))
    assert not replace(mutation, copy=caught).ok
    assert "the undamaged copy of small_vgg is caught (TS-1)" in replace(mutation, copy=caught).sentence()


def test_a_criterion_that_catches_nothing_is_named(tmp_path: Path) -> None:
    criteria = [{"id": "A", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.9999}]
    small = study(criteria=criteria)
    small["models"] = {"first": ENTRY, "second": ENTRY}
    found = rw.mutate(small, out=tmp_path, damages=["swapped_colours"], limit=70, progress=rw.no_progress)
    assert [one.outcome for one in found.results] == ["missed"]
    assert not found.ok
    notes = " ".join(found.notes)
    assert "A is inconclusive for the undamaged copy already, so that it catches nothing" in notes
    assert "no criterion is against the baseline" in notes
    assert "the study has 2 models, and the first, first, was damaged" in notes
    assert "at most 70 test images were shown" in notes


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"criteria": None}, {}, "judges by the criteria of the study, and it has none"),
        ({}, {"model": "small_vg"}, "unknown model of the study 'small_vg': did you mean 'small_vgg'"),
        ({}, {"damages": ["rust"]}, "unknown damage 'rust'"),
        ({}, {"seeds": 0}, "seeds"),
        ({}, {"limit": 0}, "limit"),
        ({}, {"out": "s3://bucket/x"}, "keeps its runs in a folder of this machine"),
    ],
)
def test_bad_input_leaves_nothing(
    changes: dict[str, Any], options: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        rw.mutate(study(**changes), progress=rw.no_progress, **options)
    assert sentence in str(error.value)
    assert [*tmp_path.iterdir()] == []


def test_the_command_asks_for_a_study_or_the_demo() -> None:
    sentence = "name a study file, or --demo to damage the classifier of the demo; not both"
    assert call("mutate", code=2) == sentence
    assert call("mutate", "study.yaml", "--demo", code=2) == sentence


def test_templates_have_a_criterion_against_a_baseline_for_those_who_want_it(tmp_path: Path) -> None:
    for template in ("traffic-signs", "road-users"):
        with_it, without = tmp_path / f"{template}.yaml", tmp_path / f"{template}-plain.yaml"
        call("criteria", "new", template, "--baseline", "--out", with_it)
        call("criteria", "new", template, "--out", without)
        assert "\n  - id: " in with_it.read_text()
        assert with_it.read_text().count("against: baseline") == 1
        assert "\n    against: baseline" in with_it.read_text()
        assert "\n    against: baseline" not in without.read_text()


@pytest.mark.slow
def test_the_demo_catches_every_large_damage(tmp_path: Path) -> None:
    call("mutate", "--demo", "--out", tmp_path / "m", "--quiet")
    stored = json.loads((tmp_path / "m" / "mutation.json").read_text())
    large = [one for one in stored["damages"] if one["large_drop"]]
    assert len(large) >= 5
    assert {one["outcome"] for one in large} == {"caught"}
    assert outcomes.LARGE_DROP == 0.05
