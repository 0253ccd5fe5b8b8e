"""No network, GAN or image of noise is shared by two seeds of a study, two repeats or two recipes."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roadworthy as rw
from roadworthy.api import prepare
from roadworthy.core.errors import InputError
from roadworthy.core.random import derive
from roadworthy.core.types import Artifact
from roadworthy.models.trained import TrainedNetwork
from roadworthy.monitors import DeepEnsemble
from roadworthy.study import parse_study

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from roadworthy.models import ReferenceModel, load_model  # noqa: E402
from roadworthy.outliers.gan import CONFIGURATIONS, Gan, GanSettings  # noqa: E402

SMALL = {"epochs": 1, "width": 2, "hidden": 4}
MODELS: dict[str, Any] = {
    "baseline": {"reference": "baseline", "retrain": True, **SMALL},
    "mc_dropout": {"reference": "mc_dropout", "retrain": True, "passes": 2, **SMALL},
    "vgg": {"reference": "vgg", **SMALL},
    "members": {"ensemble": {"reference": "baseline", "retrain": True, **SMALL}, "members": 2},
    "perception": {"perception": "small_convnext", "task": "classes", "uncertainty": "full", "retrain": True},
}
GANS = {"width": 2, "latent": 4, "batch": 42, "epochs": 1, "configurations": ["lee_gan", "sricharan_wgan_2e"]}
EDGES = [0, 1, 2, 2**31, 2**53, 2**63 - 2]


def study(seed: int, **changes: Any) -> dict[str, Any]:
    """Three repeats of networks, GANs and noise, and a monitor with networks of its own."""
    ood = {"sets": ["uniform_noise", "mixed"], "transformed": [], "gans": GANS, "repeats": 3}
    return {
        "name": "seeds",
        "seed": seed,
        "size": "16x16",
        "data": {
            "test": {"builtin": "signs", "n": 28},
            "train": {"builtin": "signs", "split": "train", "n": 56},
            "validation": {"builtin": "signs", "n": 28, "seed": 1},
        },
        "models": MODELS,
        "monitors": {"deep_ensemble": {"members": 2, "width": 2, "epochs": 1}},
        "protocols": {"ood": ood, "od_test": {}},
        **changes,
    }


def planned(content: dict[str, Any]) -> Any:
    return prepare(parse_study(content, "study"), progress=rw.no_progress).plan


def built(plan: Any) -> dict[str, Artifact]:
    """The recipes of all networks and GANs of a plan, by hash."""
    recipes = [node.parts[0].recipe for node in plan.graph().artifacts.values()]
    return {recipe.hash: recipe for recipe in recipes if not recipe.builder.startswith("monitor:")}


def made(plan: Any) -> dict[str, list[str]]:
    """The images that makers make in a plan of `ood`, by set: the fingerprint of each repeat."""
    sets: dict[str, dict[int, str]] = {}
    for case in plan.of("ood", ""):
        stimulus = case.showing.stimulus
        if "ood_set" in case.labels:
            sets.setdefault(stimulus.name, {})[(stimulus.repeat, case.labels.get("gan", ""))] = stimulus.data
    return {name: list(prints.values()) for name, prints in sets.items()}


@cache
def plan_of(seed: int) -> Any:
    return planned(study(seed))


@cache
def signs() -> Any:
    return rw.open_dataset({"builtin": "signs", "split": "train", "n": 56}, size=16)


def test_neighbouring_seeds_of_a_study_share_no_network_gan_member_or_noise() -> None:
    first, second = plan_of(0), plan_of(1)
    numbers = Counter(recipe.builder for recipe in built(first).values())
    networks = 3 * 2 + 3 + 1  # of repeats: two members, of which the plain one is the first, and MC-Dropout; vgg
    assert numbers == {"reference_classifier": networks, "task_network": 3, "gan": 4, "network:classifier": 2 * 4}
    assert len(built(second)) == len(built(first))
    assert not built(first).keys() & built(second).keys()
    seeds = [recipe.seed for plan in (first, second) for recipe in built(plan).values()]
    assert len(seeds) == len({*seeds}), "no two trainings have a seed in common"
    assert 0 <= min(seeds) <= max(seeds) < 2**53
    assert not {seed for seed in seeds if seed < 1000}
    images = [image for plan in (first, second) for sets in made(plan).values() for image in sets]
    assert len(images) == len({*images})


def test_neighbouring_repeats_share_nothing() -> None:
    for name, sets in made(plan_of(0)).items():
        assert len(sets) == len({*sets}) == (6 if name in CONFIGURATIONS else 3), name
    for name in ("baseline", "mc_dropout", "members", "perception"):
        model = load_model(MODELS[name], name=name).with_data({"train": signs()})
        by_repeat = [{part.recipe.seed for part in model.for_repeat(repeat).requires()} for repeat in range(4)]
        assert len(set[int]().union(*by_repeat)) == sum(map(len, by_repeat)) == 4 * (2 if name == "members" else 1)


def test_noise_of_a_later_repeat_is_not_that_of_the_next_seed() -> None:
    shown = [
        case.showing.data
        for seed in (0, 1)
        for case in plan_of(seed).of("ood", "")
        if case.showing.stimulus.name == "uniform_noise" and case.case.system == "vgg"
    ]
    pixels = [data.batch([0, 1, 2, 3]).images for data in shown]
    for number, images in enumerate(pixels):
        for others in pixels[:number]:
            assert not any(np.array_equal(image, other) for image in images for other in others)


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {"spec": "mc_dropout"}), ({"width": 2}, {"width": 2, "epochs": 2}), ({}, {"keep": "last"})],
)
def test_networks_of_unlike_recipes_start_from_other_weights(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Baseline and MC-Dropout have the same layers with weights: they share neither these nor the order of images."""
    one, other = (ReferenceModel(**settings).on(signs()) for settings in (first, second))
    assert one.seed != other.seed
    weights = [model.network().state_dict().values() for model in (one, other)]
    assert not any(torch.equal(mine, theirs) for mine, theirs in zip(*weights, strict=True))


def test_a_name_trains_nothing_anew_and_equal_recipes_are_one_artifact() -> None:
    models = {
        "renamed": MODELS["baseline"],
        "twice": {**MODELS["baseline"]},
        "dropped": {**MODELS["mc_dropout"], "passes": 5},
    }
    ood = {**study(0)["protocols"]["ood"], "gans": None}
    renamed = built(planned(study(0, models=models, monitors={}, protocols={"ood": ood})))
    assert len(renamed) == 2 * 3
    assert renamed.keys() <= built(plan_of(0)).keys()


def test_another_name_of_a_gan_trains_nothing_anew() -> None:
    known = {"aim": "lee", "loss": "original", "stop": "accuracy", "at": 0.3}
    gans = {**GANS, "configurations": [{"name": "mine", **known}, {"name": "yours", **known}]}
    ood = {**study(0)["protocols"]["ood"], "gans": gans}
    plan = planned(study(0, models={"vgg": MODELS["vgg"]}, monitors={}, protocols={"ood": ood}))
    of_gans = {key for key, recipe in built(plan).items() if recipe.builder == "gan"}
    assert len(of_gans) == 2
    assert of_gans <= built(plan_of(0)).keys()


def test_a_written_seed_takes_the_place_of_the_study_s() -> None:
    """At a model: it is then the same in every study; as the study's own seed it changes nothing."""
    for name in ("baseline", "members", "perception"):
        entry = MODELS[name]
        inner = {"ensemble": {**entry["ensemble"], "seed": 7}} if name == "members" else {"seed": 7}
        seeds = [
            [part.recipe.seed for part in planned_model(study_seed, {**entry, **changes}).requires()]
            for study_seed, changes in [(0, inner), (1, inner), (7, {}), (0, {})]
        ]
        assert seeds[0] == seeds[1] == seeds[2] != seeds[3]


def planned_model(seed: int, entry: dict[str, Any]) -> Any:
    ood = {"sets": ["uniform_noise"], "transformed": [], "repeats": 2}
    content = study(seed, models={"it": entry}, monitors={}, protocols={"ood": ood})
    del content["data"]["validation"]
    return prepare(parse_study(content, "study"), progress=rw.no_progress).sources[""].models["it"]


def test_a_monitor_s_networks_follow_the_study_s_seed_or_their_own() -> None:
    def seeds(monitor: DeepEnsemble, study_seed: int) -> list[int]:
        content = study(study_seed, models={"vgg": MODELS["vgg"]}, protocols={"od_test": {}})
        content["monitors"] = {"combined": {"of": [{"monitor": monitor.name, **monitor.parameters()}]}}
        return [recipe.seed for recipe in built(planned(content)).values() if recipe.builder == "network:classifier"]

    studies, written = DeepEnsemble(members=2, width=2, epochs=1), DeepEnsemble(members=2, width=2, epochs=1, seed=3)
    assert len({*seeds(studies, 0), *seeds(studies, 1), *seeds(written, 0)}) == 6
    assert seeds(written, 0) == seeds(written, 1) == seeds(studies, 3)


@pytest.mark.parametrize("seed", [-1, 2**63, 0.5, "x"])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(InputError, match="seed"):
        ReferenceModel("baseline", seed=seed)
    with pytest.raises(InputError, match="seed"):
        load_model({"perception": "small_convnext", "seed": seed})


whole = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**63 - 1))


@given(
    st.sets(
        st.tuples(
            whole,
            st.sampled_from(["gan", "task_network", "gan 1"]),
            st.text("ab", max_size=2),
            st.integers(0, 9),
            st.integers(0, 9),
        ),
        max_size=30,
    )
)
def test_every_key_has_a_seed_of_its_own(keys: set[tuple[int, str, str, int, int]]) -> None:
    seeds = {derive(*key) for key in keys}
    assert len(seeds) == len(keys)
    assert all(0 <= seed < 2**53 for seed in seeds)
    assert {derive(np.int64(key[0]), *key[1:]) for key in keys} == seeds


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**63 - 2)), st.integers(1, 12))
def test_whatever_the_seed_its_neighbour_shares_no_training(seed: int, repeats: int) -> None:
    networks = [ReferenceModel(spec, retrain=True) for spec in ("baseline", "mc_dropout")]
    seeds = [
        member.seed
        for study_seed in (seed, seed + 1)
        for network in networks
        for bound in [network.on(signs(), study_seed=study_seed)]
        for repeat in range(repeats)
        for member in (bound.for_repeat(repeat), bound.for_repeat(repeat).member(1))
    ]
    seeds += [
        Gan(CONFIGURATIONS[name], GanSettings(), signs(), seed=study_seed, index=index).recipe.seed
        for study_seed in (seed, seed + 1)
        for name in ("lee_gan", "lee_wgan")
        for index in range(repeats)
    ]
    assert len({*seeds}) == len(seeds)


def test_what_was_trained_before_is_not_taken_over() -> None:
    """Recipes of former versions had the seed of the study, plus a number, as it is: none of these is planned."""
    network: TrainedNetwork = ReferenceModel("baseline").on(signs())
    former = Artifact("reference_classifier", ReferenceModel("baseline").settings(), (signs().fingerprint(),), seed=0)
    assert network.recipe.parameters == former.parameters
    assert network.recipe.hash != former.hash
