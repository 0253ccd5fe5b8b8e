"""Monitors: every one keeps the role's promises, and known answers for thresholds, neighbours, Weibull and scores."""

from __future__ import annotations

import json
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import lsq_linear
from scipy.special import logsumexp
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC
from threadpoolctl import threadpool_info

from commands import call
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.manifests import commit
from roadworthy.core.registry import Registry
from roadworthy.core.roles import Model
from roadworthy.core.threads import one_thread
from roadworthy.data import Subset
from roadworthy.models import CallableModel, OnnxModel, TorchModel, align
from roadworthy.models import signals as signals_module
from roadworthy.models.head import Head, find_head, penultimate
from roadworthy.models.signals import LiveTraining, Signals, Training, full_name
from roadworthy.monitors import (
    MONITORS,
    AeThreshold,
    Aim,
    Ash,
    BinClass,
    BnnSvm,
    Boxes,
    Combined,
    DeepEnsemble,
    DeepKnn,
    Doctor,
    Energy,
    FittedMonitor,
    KnnSvm,
    LogisticSvm,
    Mahalanobis,
    MahalanobisFull,
    MnnSvm,
    Monitor,
    Msp,
    Neco,
    Neighbours,
    NnGuide,
    Odin,
    OdinId,
    OpenMax,
    PixelCnnPlusPlus,
    PytorchOod,
    Random,
    RankFeat,
    React,
    ScoreSvm,
    TemperatureMsp,
    TiesWarning,
    Vim,
    VnnSvm,
    best_threshold,
    check_monitor,
    check_usefulness,
    conformance,
    fit_svm,
    hinge_threshold,
    load_monitor,
    make_monitor,
    represent_data,
    share_threshold,
)
from roadworthy.monitors import neighbours as neighbours_module
from roadworthy.monitors import svm as svm_module
from roadworthy.monitors import threshold as threshold_module
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.doctor import error_odds
from roadworthy.monitors.mc_dropout import McDropoutEntropy
from roadworthy.monitors.openmax import distance, fit_weibull
from roadworthy.uncertainty import McDropout
from tiny import import_text

TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()

FROM_FILES = {"callable", "onnx_monitor", "stored"}
"""Monitors that need a file of the user's: see test_other_monitors."""
OF_TORCH: dict[str, Callable[[], Monitor]] = {
    "mahalanobis_full": partial(MahalanobisFull, epsilons=(0.0, 0.01), most=60),
    "rankfeat": RankFeat,
}
"""Monitors that reach into torch networks, and into no others."""
CASES: dict[str, Callable[[], Monitor]] = {
    name: MONITORS.get(name)
    for name in MONITORS
    if name not in {"pytorch_ood", "robustness_radius", *FROM_FILES, *OF_TORCH}
}
SMALL: dict[str, Any] = {"width": 8, "epochs": 2, "batch": 24, "learning_rate": 0.02}
"""Settings of networks of a monitor's own that are trained in a moment."""
SMALL_AUTOENCODER = SMALL | {"width": 4, "most_width": 8, "bottleneck": 8}
OWN_NETWORKS: dict[str, Callable[[], Monitor]] = {
    "ae_threshold": partial(AeThreshold, **SMALL_AUTOENCODER),
    "ae_threshold mse": partial(AeThreshold, loss="mse", **SMALL_AUTOENCODER),
    "mnn_svm": partial(MnnSvm, **SMALL_AUTOENCODER),
    "bnn_svm": partial(BnnSvm, **SMALL_AUTOENCODER),
    "vnn_svm": partial(VnnSvm, k=2, **SMALL_AUTOENCODER),
    "logistic_svm": partial(LogisticSvm, **SMALL),
    "bin_class": partial(BinClass, **SMALL),
    "deep_ensemble": partial(DeepEnsemble, members=2, **SMALL),
    "pixelcnn": partial(PixelCnnPlusPlus, **SMALL | {"epochs": 1}, blocks=1, images=40, drawn=1),
}
"""Monitors that train networks of their own: see test_own_networks too."""
CASES |= OWN_NETWORKS
CASES |= {f"knn_svm {k}": partial(KnnSvm, k=k) for k in (2, 4, 8)}
CASES |= {
    "deep_knn": partial(DeepKnn, k=10),
    "combined": partial(Combined, of=("msp", "energy", {"monitor": "knn_svm", "k": 4}), rule="majority"),
    "odin small": partial(Odin, temperatures=(1.0, 100.0), epsilons=(0.0, 0.01)),
    "ash b": partial(Ash, variant="b", percentiles=50.0),
    "nnguide whole": partial(NnGuide, k=5, alpha=1.0),
    "neco ratio": partial(Neco, dimensions=3, times_logit=False),
    "temperature given": partial(TemperatureMsp, temperature=2.0),
    "doctor beta": partial(Doctor, variant="beta", temperature=2.0),
    "boxes two_neurons": partial(Boxes, clusters=3, reduction="two_neurons"),
    "boxes pca": partial(Boxes, clusters=3, reduction="pca"),
    "boxes isomap": partial(Boxes, clusters=3, reduction="isomap", most=40),
}
OF_NO_USE_HERE = {
    "random": "it knows nothing",
    "assertion": "it watches one rule of the user's, which flat noise keeps",
    "pixelcnn": "flat grey noise is likelier than patterns of high contrast: the paper's observation on smooth images",
}
"""Monitors that need not tell flat grey noise from patterns, and why."""


@pytest.fixture(scope="module")
def network() -> Any:
    """A small torch network for the toy images, 8x8x3, with a dropout layer."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 4)
    )
    batch = TRAIN.batch(slice(None))
    images = torch.from_numpy(batch.images.transpose(0, 3, 1, 2).copy()).float() / 255
    labels = torch.from_numpy(batch.labels)
    for _ in range(60):
        gradients = torch.autograd.grad(nn.functional.cross_entropy(net(images), labels), list(net.parameters()))
        with torch.no_grad():
            for weights, gradient in zip(net.parameters(), gradients, strict=True):
                weights -= 0.3 * gradient
    return net.eval()


@pytest.fixture(scope="module")
def torch_model(network: Any) -> TorchModel:
    return TorchModel(network, size=8, name="small")


@contextmanager
def built_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is built inside; after it, the check of usefulness judges what was built first, not a copy of it."""
    build, built = conformance._built, []

    def building(*given: Any) -> Any:
        built.append(build(*given))
        return built[-1]

    monkeypatch.setattr(conformance, "_built", building)
    yield
    monkeypatch.setattr(conformance, "_built", lambda *given: built[0])


@pytest.mark.filterwarnings("ignore::roadworthy.monitors.TiesWarning")
@pytest.mark.parametrize("name", CASES)
def test_every_monitor_keeps_the_promises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with built_once(monkeypatch):
        check_monitor(CASES[name])
    if name not in OF_NO_USE_HERE:
        check_usefulness(CASES[name])


REAL = ("msp", "odin small", "mahalanobis", "vim", "react", "deep_knn", "mc_dropout", "openmax", "boxes")
POST_HOC = ("ash", "dice", "gradnorm", "neco", "nnguide", "relative_mahalanobis", "residual", "scale", "she")
"""Not fdbd: grey noise lies near the mean features of this network, which is what it divides by."""


@pytest.mark.filterwarnings("ignore::roadworthy.monitors.TiesWarning")
@pytest.mark.parametrize("name", [*REAL, *POST_HOC, *OF_TORCH, "activation_patterns", "odin_id"])
def test_monitors_of_a_real_network_keep_the_promises(
    name: str, torch_model: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = (CASES | OF_TORCH)[name]
    with built_once(monkeypatch):
        check_monitor(make, model=torch_model)
    check_usefulness(make, model=torch_model)


def test_the_conformance_test_finds_what_is_wrong() -> None:
    class Turned(Msp):
        name = "turned"

        def rate(self, rows: Any, rule: Any, state: Any) -> Any:
            return -rows[:, 0]

    class Neighbourly(Msp):
        name = "neighbourly"

        def read(self, signals: Any, state: Any) -> Any:
            return signals.images.mean(axis=(1, 2, 3)) - signals.images.mean()

    class Restless(Msp):
        name = "restless"
        calls: ClassVar[list[int]] = []

        def tune(self, inside: Any, outside: Any, aim: Any, state: Any) -> Any:
            self.calls.append(1)
            return {}

        def rate(self, rows: Any, rule: Any, state: Any) -> Any:
            return rows[:, 0] + len(self.calls)

    class Hasty(Msp):
        name = "hasty"

        def read(self, signals: Any, state: Any) -> Any:
            return signals.probabilities.max(axis=1) * (2 if len(signals) == 1 else 1)

    class Unannounced(Msp):
        name = "unannounced"

        def fit(self, training: Any) -> Any:
            return {"mean": training.gather("logits").mean()}

    @dataclass(frozen=True)
    class Drifting(Msp):
        name = "drifting"
        looks: int = 0

        def tune(self, inside: Any, outside: Any, aim: Any, state: Any) -> Any:
            object.__setattr__(self, "looks", self.looks + 1)
            return {}

    for kind, complaint in (
        (Drifting, "settings must not change"),
        (Neighbourly, "order|batch|alone"),
        (Restless, "a second calibration must leave the first as it is"),
        (Hasty, "one image alone"),
        (Unannounced, "the signal logits was not announced"),
    ):
        with pytest.raises(AssertionError, match=complaint):
            check_monitor(kind)
    check_monitor(Turned)
    for useless in (Turned, CASES["random"]):
        with pytest.raises(AssertionError, match=r"of no use on plain outliers: .* decisions are right; "):
            check_usefulness(useless)
    with pytest.raises(
        AssertionError, match=r"outliers score higher \(median .*\), and higher scores must mean in-dist"
    ):
        check_usefulness(Turned)


def test_a_monitor_with_settings_is_checked_as_it_is_and_sizes_are_read_in_every_form() -> None:
    for size in ("32x32", (32, 32)):
        check_monitor(Demanding(layer="block4"), size=size, layer="block4", width=40)
    check_usefulness(Msp())
    for wrong, sentence in (
        ({"size": (32, 16)}, r"are square: give one number as size, not \(32, 16\)"),
        ({"size": "large"}, "cannot read the size 'large'"),
        ({"width": -1}, "width must be a whole number of at least 4, .* it cannot be -1"),
    ):
        for check in (check_monitor, check_usefulness):
            with pytest.raises(InputError, match=sentence):
                check(Msp, **wrong)
    wide = own(read=lambda self, signals, state: signals.images[:, 10, 10, 0].astype(float))
    with pytest.raises(AssertionError, match=r"^read must give .* images of 8x8 pixels: give `size=` where it needs"):
        check_monitor(wide)


@dataclass(frozen=True, kw_only=True)
class Demanding(Monitor):
    """The mean of a layer of 40 numbers, called block3, of images that are at least 32 pixels wide."""

    name = "demanding"
    needs = frozenset({"features"})
    layer: str = "block3"

    def read(self, signals: Any, state: Any) -> Any:
        assert signals.images.shape[1] >= 32
        features = signals.features(self.layer)
        assert features.shape[1] == 40
        return features.max(axis=1)


def test_images_and_layers_are_as_a_monitor_needs_them() -> None:
    for check in (check_monitor, check_usefulness):
        check(Demanding, size=32, layer="block3", width=40)
    check_monitor(CASES["mahalanobis"], size=32, width=40)
    with pytest.raises(AssertionError, match="unknown layer 'block3': did you mean 'block2'"):
        check_monitor(Demanding, size=32, layer="block2", width=40)


ANY = {"name": "own", "code_version": "1", "read": lambda self, signals, state: signals.images.mean(axis=(1, 2, 3))}


def own(**members: Any) -> type[Monitor]:
    """A monitor of one's own: the mean grey, unless the members say otherwise; None leaves one out."""
    given = {key: value for key, value in (ANY | members).items() if value is not None}
    return dataclass(frozen=True, kw_only=True)(type("Own", (Monitor,), given | {"__module__": __name__}))


def own_with(setting: Any) -> Callable[[], Monitor]:
    kind = own(__annotations__={"floor": Any}, floor=0.0)
    return lambda: kind(floor=setting)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (own(name=None), "must state its name"),
        (own(name=3), "must state its name, a text, not 3"),
        (own(needs=frozenset({"logit"})), "needs must be some of .*, not 'logit'"),
        (own(needs=["logits"]), "needs must be a frozenset"),
        (own(classes="two"), "classes must be a whole number of at least 1, not 'two'"),
        (own(learns_from=("valid",)), r"learns_from must be a tuple of .*, not \('valid',\)"),
        (own(learns_from="train"), "learns_from must be a tuple of .*, not 'train'"),
        (own(read=None), "made without arguments: TypeError"),
        (own_with(np.zeros(2)), "plain values: .*floor"),
        (own_with(np.float32(1)), "plain values: .*floor"),
        (own_with(float("nan")), "plain values: .*floor"),
        (own(read=lambda self, signals, state: np.zeros((3, 2))), r"one row of numbers per image: .*\(3, 2\)"),
        (own(fit=lambda self, training: 1 / 0), "learn from training images: ZeroDivisionError"),
        (own(rate=lambda self, rows, rule, state: rows), "threshold on images inside alone: .*one score per image"),
        (own(notes=lambda self, state, rule: 1 / 0), "save and load must keep the monitor: ZeroDivisionError"),
    ],
)
def test_every_broken_promise_is_an_assertion_that_names_it(make: Callable[[], Monitor], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_monitor(make)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (lambda n: np.zeros(n - 1), r"monitor own: read must return one row per image, .* N = 64, not \(63,\)"),
        (lambda n: np.zeros((n, 2, 2)), r"not \(64, 2, 2\)"),
        (lambda n: np.zeros((n, 0)), r"not \(64, 0\)"),
        (lambda n: 0.5, r"not \(\)"),
        (lambda n: None, "must be an array of numbers, not NoneType"),
        (lambda n: ["sharp"] * n, "must be an array of numbers, not list"),
        (lambda n: np.array(["sharp"] * n), "must be an array of numbers, not an array of <U5"),
        (lambda n: [[0.0], [0.0, 1.0]], "must be an array of numbers: "),
    ],
)
def test_rows_that_are_none_are_refused(rows: Callable[[int], Any], sentence: str) -> None:
    fitted = own(read=lambda self, signals, state: rows(len(signals)))().build(ToyModel())
    with pytest.raises(InputError, match=sentence):
        fitted.represent(ToyModel(), TEST.batch(slice(0, 5)))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (None, "monitor own: fit must return arrays by name, not NoneType"),
        (np.zeros(3), "fit must return arrays by name, not ndarray"),
        ({1: np.zeros(3)}, "fit must return arrays by name"),
        ({"mean": "high"}, "monitor own: mean of fit must be an array of numbers, not str"),
        ({"mean": np.nan}, "mean is NaN or infinite"),
    ],
)
def test_a_fit_that_gives_no_arrays_is_refused(found: Any, sentence: str) -> None:
    monitor = own(fit=lambda self, training: found)()
    with pytest.raises(InputError, match=sentence):
        monitor.build(ToyModel(), TRAIN)
    with pytest.raises(InputError, match="monitor own learns from training images: give them to build"):
        monitor.build(ToyModel())


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        (lambda rows: rows, r"monitor own: rate must return one score per image, \(4,\), not \(4, 2\)"),
        (lambda rows: 0.5, r"one score per image, \(4,\), not \(\)"),
        (lambda rows: ["a"] * len(rows), "what rate returns must be an array of numbers, not list"),
        (lambda rows: np.where(rows[:, 0] > 1, np.nan, 1.0), "rate returned NaN for 2 of 4 images"),
    ],
)
def test_scores_that_are_none_are_refused(scores: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fitted(own(rate=lambda self, rows, rule, state: scores(rows))()).calibrate(np.arange(8.0).reshape(4, 2) / 2)


def fitted(monitor: Monitor) -> FittedMonitor:
    return monitor.build(ToyModel(), TRAIN)


def test_an_unknown_need_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'logits'"):
        own(needs=frozenset({"logit"}))().check(ToyModel())


def test_a_class_defined_again_replaces_itself() -> None:
    kinds = Registry[type]("kind")
    first, second = (kinds.register("own")(own()) for _ in range(2))
    assert first is not second
    assert kinds.get("own") is second
    with pytest.raises(ValueError, match="there is already a kind 'own'"):
        kinds.register("own")(Msp)


# Thresholds

scores = st.lists(st.integers(-4, 4).map(float) | st.floats(-5, 5, width=32), min_size=1, max_size=25)


@given(scores, scores, st.floats(0.05, 0.95), st.floats(0.1, 10))
def test_the_exact_threshold_equals_brute_force(
    inside: list[float], outside: list[float], prior: float, cost: float
) -> None:
    ins, outs = np.array(inside), np.array(outside)

    def loss(threshold: float) -> float:
        return (1 - prior) * np.mean(ins < threshold) + prior * cost * np.mean(outs >= threshold)

    cuts = [-np.inf, *np.concatenate([ins, outs]), np.inf]
    found = best_threshold(ins, outs, prior=prior, cost=cost)
    assert loss(found) == pytest.approx(min(map(loss, cuts)), abs=1e-12)


def test_thresholds_at_the_edges() -> None:
    assert best_threshold([1.0, 1.0], [1.0]) == -np.inf  # nothing to tell apart: reject none
    assert best_threshold([0.0], [1.0], cost=3) == np.inf
    assert best_threshold([2.0], [1.0]) == 1.5
    tiny = np.nextafter(1.0, 2.0)
    assert best_threshold([tiny], [1.0]) == tiny  # nothing lies half way
    assert share_threshold([3.0, 1.0, 2.0], 0.0) == 1.0
    assert share_threshold(np.arange(200.0)) == 10.0
    assert np.mean(np.arange(19.0) < share_threshold(np.arange(19.0))) == 0.0
    for bad in (partial(best_threshold, [], [1.0]), partial(best_threshold, [np.nan], [1.0])):
        with pytest.raises(InputError):
            bad()
    for prior, cost in ((0.0, 1.0), (1.0, 1.0), (0.5, 0.0), (0.5, np.inf)):
        with pytest.raises(InputError):
            best_threshold([1.0], [0.0], prior=prior, cost=cost)
    with pytest.raises(InputError, match="did you mean 'exact'"):
        Aim(threshold="exakt")


def test_a_threshold_that_ties_keep_from_its_share_says_so(tmp_path: Path) -> None:
    """Three of 149 images lie below the others, which are all alike: 2.01 % can be rejected and 5 % cannot."""
    built, model = fitted(Msp()), ToyModel()
    rows = np.array([0.5, 0.6, 0.7] + [1.0] * 146, np.float32)[:, None]
    with pytest.warns(TiesWarning, match=r"monitor msp rejects 2\.01 % of the 149 .* not the 5 % asked for: ties"):
        monitor = built.calibrate(rows)
    assert monitor.rejected is not None
    assert monitor.reject(rows).mean() == monitor.rejected.achieved == 3 / 149
    saved = json.loads((monitor.save(tmp_path / "m") / "monitor.json").read_text())
    assert saved["rejected"] == {"asked": 0.05, "achieved": 3 / 149, "images": 149}
    for said in (str(monitor), str(load_monitor(tmp_path / "m", model))):
        assert said.startswith("Msp() with threshold 1 rejects 2.01 % of the 149 in-distribution images")
        assert "ties prevent it" in said
    monitor = built.calibrate(rows, rows - 1)
    assert monitor.rejected is None
    assert str(monitor) == f"Msp() with threshold {monitor.threshold:g}"


@pytest.mark.parametrize(
    ("scores", "rejected", "achieved", "tied"),
    [
        (np.arange(100), 0.05, 0.05, False),
        (np.arange(19), 0.05, 0.0, False),  # a share of less than one image: nothing to reject, and no ties
        (np.arange(39), 0.05, 1 / 39, False),
        ([0, 1, 1, 2, 3, 4, 5, 6, 7, 8], 0.2, 0.1, True),  # one image short
        ([0, 0, 1, 2, 3, 4, 5, 6, 7, 8], 0.2, 0.2, False),  # ties that do not matter
        ([7] * 40, 0.5, 0.0, True),
        ([7], 0.5, 0.0, False),
        ([1, 2], 0.0, 0.0, False),
    ],
)
def test_the_share_that_a_threshold_reaches_is_told_beside_the_one_asked_for(
    scores: Any, rejected: float, achieved: float, tied: bool
) -> None:
    rows = np.asarray(scores, np.float32)[:, None]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        monitor = fitted(Msp()).calibrate(rows, rejected=rejected)
    share = monitor.rejected
    assert share is not None
    assert (share.asked, share.achieved, share.images, share.tied) == (rejected, achieved, len(rows), tied)
    assert monitor.reject(rows).mean() == achieved
    assert [warning.category for warning in told] == [TiesWarning] * tied
    assert ("ties" in str(monitor)) == tied
    assert f"{100 * achieved:.3g} %" in str(monitor)
    assert f"{100 * rejected:.3g} %" in str(monitor)


def as_before(folder: Path) -> dict[str, Any]:
    """The record of a saved monitor as the version before manifests wrote it, which it becomes."""
    path = folder / "monitor.json"
    record = json.loads(path.read_text()) | {"format": 1, "arrays": digest_file(folder / "monitor.npz")}
    record |= {"digest": digest(record)}
    path.write_text(json.dumps(record))
    (folder / "manifest.json").unlink()
    return record


def test_a_monitor_saved_by_an_earlier_version_loads_and_a_damaged_share_is_refused(tmp_path: Path) -> None:
    monitor = fitted(Msp()).calibrate(np.arange(40.0)[:, None])
    path = monitor.save(tmp_path) / "monitor.json"
    record = as_before(tmp_path)
    assert load_monitor(tmp_path).rejected == monitor.rejected
    del record["rejected"], record["calibrated_on"], record["digest"]
    path.write_text(json.dumps(record))
    assert load_monitor(tmp_path).rejected is None
    assert str(load_monitor(tmp_path)) == "Msp() with threshold 2"
    path.write_text(json.dumps(record | {"rejected": {"asked": 0.05}}))
    with pytest.raises(InputError, match="damaged, its rejected cannot be read"):
        load_monitor(tmp_path)


DIFFERENT = {
    "activation_patterns", "ae_threshold", "assertion", "bin_class", "bnn_svm", "boxes", "deep_ensemble", "deep_knn",
    "doctor", "energy", "kl_matching", "knn_svm", "logistic_svm", "mahalanobis", "mc_dropout", "mnn_svm", "odin",
    "odin_id", "openmax", "pixelcnn", "pytorch_ood", "robustness_radius", "score_svm", "vim", "vnn_svm",
    "ash", "dice", "fdbd", "neco", "nnguide", "relative_mahalanobis", "residual", "scale", "she", "temperature_msp",
    "mahalanobis_full", "rankfeat",
}  # fmt: skip


def test_what_differs_from_the_paper_is_said_where_monitors_are_chosen() -> None:
    stated = {name: MONITORS.get(name).differs_from_paper for name in MONITORS}
    assert {name for name, differs in stated.items() if differs} == DIFFERENT
    assert "neither the input perturbation nor the ensemble of layers" in stated["mahalanobis"]
    assert "the Weibull starts 1 below the smallest distance of the tail" in stated["openmax"]
    listed = {line.split()[0]: line for line in call("list", "monitors").splitlines()}
    page = (Path(__file__).parent.parent / "docs" / "monitors.md").read_text()
    for name, differs in stated.items():
        assert (f"Differs from the paper: {differs}." in listed[name]) == bool(differs)
        assert (f"Differs from the paper: {differs}." in (MONITORS.get(name).__doc__ or "")) == bool(differs)
        assert (f"| `{name}` | {differs} |" in page) == bool(differs)


def test_openmax_starts_its_weibull_where_it_says(torch_model: TorchModel) -> None:
    monitor = OpenMax(tail=5).build(torch_model, TRAIN)
    logits = np.concatenate([torch_model.answer(TRAIN.batch(slice(None)), 32).logits]).astype(np.float64)
    for label, (shape, location, _) in enumerate(monitor.state["weibulls"]):
        own = logits[(logits.argmax(axis=1) == TRAIN.labels) & (TRAIN.labels == label)]
        if shape:
            tail = np.sort(distance(own, own.mean(axis=0)))[-5:]
            assert location == pytest.approx(tail[0] - 1, abs=1e-4)


def test_the_hinge_fit_is_good_but_not_the_best() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.beta(8, 2, 1000), rng.beta(3, 2, 1000)

    def accuracy(threshold: float) -> float:
        return float((np.mean(inside >= threshold) + np.mean(outside < threshold)) / 2)

    hinge, exact = accuracy(hinge_threshold(inside, outside)), accuracy(best_threshold(inside, outside))
    assert 0.6 < hinge <= exact
    apart = hinge_threshold(inside + 1, outside - 1)
    assert outside.max() - 1 < apart < inside.min() + 1


@pytest.mark.parametrize("columns", [1, 5])
def test_the_linear_svm_minimises_its_objective(columns: int) -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(1.0, 2, (150, columns)), rng.normal(-1.0, 3, (90, columns))
    svm = fit_svm(inside, outside)
    rows = (np.concatenate([inside, outside]) - svm.mean) / svm.scale
    targets, weights = np.repeat([1, -1], [150, 90]), np.repeat([240 / 2 / 150, 240 / 2 / 90], [150, 90])
    rows = np.column_stack([rows, np.ones(240)])  # weight decay holds for the bias too: it is one more column

    def objective(vector: np.ndarray) -> float:
        return float(0.5 * vector @ vector + weights @ np.maximum(0, 1 - targets * (rows @ vector)))

    reference = SVC(kernel="linear", C=1.0, tol=1e-6).fit(rows, targets, sample_weight=weights)
    own = objective(np.append(svm.weights, svm.bias))
    best = min(
        objective(reference.coef_[0] + shift * np.eye(columns + 1)[-1]) for shift in (reference.intercept_[0], 0)
    )
    assert own <= best * 1.001
    assert svm.converged


def test_the_linear_svm_is_exact_where_columns_are_nearly_the_same() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(0, 1, (160, 1)) + rng.normal(0, 1e-3, (160, 12))
    columns[:80] += rng.normal(0.3, 0.5, (80, 1))
    svm = fit_svm(columns[:80], columns[80:])
    assert svm.converged
    rows = np.column_stack([(columns - svm.mean) / svm.scale, np.ones(160)])
    signed = rows * np.repeat([1.0, -1.0], 80)[:, None]
    vector = np.append(svm.weights, svm.bias)
    least = dual_bound(signed, vector)
    assert 0.5 * vector @ vector + np.maximum(0, 1 - signed @ vector).sum() == pytest.approx(least, rel=1e-6)


def dual_bound(signed: np.ndarray, vector: np.ndarray) -> float:
    """A lower bound of |w|^2 / 2 + sum max(0, 1 - z w): the dual, sum a - |Z^T a|^2 / 2, at an a that makes w."""
    margins = signed @ vector
    fixed = np.where(margins < 1 - 1e-5, 1.0, 0.0)
    free = np.abs(margins - 1) <= 1e-5
    found = lsq_linear(signed[free].T, vector - fixed @ signed, bounds=(0, 1), tol=1e-14)
    fixed[free] = found.x
    return float(fixed.sum() - 0.5 * np.square(fixed @ signed).sum())


def test_an_svm_that_does_not_converge_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, outside = np.random.default_rng(0).normal([[[1.0]], [[-1.0]]], 1.0, (2, 30, 3))
    monitor = fitted(ScoreSvm())
    with monkeypatch.context() as patch:
        patch.setattr(threshold_module, "SVM_STEPS", 2)
        stopped = monitor.calibrate(inside, outside)
    solved = monitor.calibrate(inside, outside)
    assert stopped.notes == (svm_module.NOT_CONVERGED,)
    assert not stopped.rule["converged"]
    assert solved.notes == monitor.notes == ()


# Neighbours


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 6), st.booleans(), st.integers(0, 2**16))
def test_neighbours_are_those_of_scikit_learn(
    references: int, queries: int, size: int, pixels: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    draw = (
        (lambda n: rng.integers(0, 256, (n, size), dtype=np.uint8))
        if pixels
        else (lambda n: (1000 + rng.normal(0, 1, (n, size))).astype(np.float32))
    )
    known, asked = draw(references), draw(queries)
    known[: references // 2] = known[-1]  # ties
    asked[0] = known[0]
    count = min(8, references)
    expected = (
        NearestNeighbors(n_neighbors=count, algorithm="kd_tree")
        .fit(known.astype(float))
        .kneighbors(asked.astype(float))
    )
    found = Neighbours(known).distances(asked, count)
    np.testing.assert_allclose(found, expected[0], rtol=1e-12, atol=1e-9)
    assert found[0, 0] == 0


def test_neighbours_closer_than_single_precision_can_tell() -> None:
    rng = np.random.default_rng(0)
    sides = rng.choice([-1000.0, 1000.0], (400, 1))
    known = (sides + rng.normal(0, 1e-2, (400, 12))).astype(np.float32)
    asked = (1000.0 + rng.normal(0, 1e-2, (20, 12))).astype(np.float32)
    exact = np.sort(np.sqrt(((asked[:, None].astype(float) - known) ** 2).sum(-1)), axis=1)[:, :3]
    np.testing.assert_allclose(Neighbours(known).distances(asked, 3), exact, rtol=1e-12)


def test_neighbours_among_many_duplicates() -> None:
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 256, (5, 30), dtype=np.uint8)
    known, asked = pool[rng.integers(0, 5, 2001)], rng.integers(0, 256, (9, 30), dtype=np.uint8)
    exact = np.sort(np.sqrt(((asked[:, None].astype(float) - known) ** 2).sum(-1)), axis=1)[:, :8]
    np.testing.assert_array_equal(Neighbours(known).distances(asked, 8), exact)
    np.testing.assert_array_equal(Neighbours(known.astype(float)).distances(asked.astype(float), 8), exact)
    extreme = Neighbours(np.zeros((3, neighbours_module.MOST_BYTES), np.uint8))
    far = extreme.distances(np.full((1, neighbours_module.MOST_BYTES), 255, np.uint8), 1)
    assert far[0, 0] == 255 * np.sqrt(neighbours_module.MOST_BYTES)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_neighbours_do_not_depend_on_the_block(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    known, asked = rng.integers(0, 256, (300, 192)).astype(kind), rng.integers(0, 256, (50, 192)).astype(kind)
    whole = Neighbours(known).distances(asked, 8)
    exact = np.sort(np.sqrt(((asked[:, None].astype(float) - known) ** 2).sum(-1)), axis=1)[:, :8]
    np.testing.assert_array_equal(whole, exact)
    monkeypatch.setattr(neighbours_module, "PANEL_BYTES", 4 * 300 * 7)
    monkeypatch.setattr(neighbours_module, "VALUES_AT_ONCE", 500)
    np.testing.assert_array_equal(Neighbours(known).distances(asked, 8), whole)
    with pytest.raises(InputError, match="301 neighbours"):
        Neighbours(known).distances(asked, 301)


def test_knn_svm_sees_pixels_from_0_to_1() -> None:
    monitor = fitted(KnnSvm(k=4))
    flat = lambda data: data.batch(slice(None)).images.reshape(len(data), -1) / 255  # noqa: E731
    expected = NearestNeighbors(n_neighbors=4, algorithm="brute").fit(flat(TRAIN)).kneighbors(flat(TEST))[0]
    np.testing.assert_allclose(represent_data(monitor, ToyModel(), TEST), expected, rtol=1e-6)
    assert represent_data(monitor, ToyModel(), TRAIN)[:, 0].max() == 0
    other = Subset(TEST, range(3)).resized((9, 8))
    with pytest.raises(InputError, match="was built on images"):
        represent_data(monitor, ToyModel(), other)
    with pytest.raises(InputError, match="at least 500 training images, not 240"):
        KnnSvm(k=500).build(ToyModel(), TRAIN)


# Scores


def answers(model: Model, data: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, features and labels of a data set, in float64."""
    batch = data.batch(slice(None))
    logits, features = model.predict(batch).logits, model.features(batch, penultimate(model))
    assert logits is not None
    return logits.astype(float), features.astype(float), batch.labels


def scored(monitor: Monitor, model: Model) -> np.ndarray:
    built = monitor.build(model, TRAIN)
    rows = represent_data(built, model, HELD_OUT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TiesWarning)
        calibrated = built.calibrate(rows)
    return calibrated.score(represent_data(built, model, OUTLIERS))


def test_scores_of_logits(torch_model: TorchModel) -> None:
    logits, _, _ = answers(torch_model, OUTLIERS)
    probabilities = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(scored(Msp(), torch_model), probabilities.max(axis=1), atol=1e-4)
    np.testing.assert_allclose(scored(make_monitor("max_logit"), torch_model), logits.max(axis=1), atol=1e-4)
    for temperature in (1.0, 10.0):
        expected = temperature * np.log(np.exp(logits / temperature).sum(axis=1))
        np.testing.assert_allclose(scored(Energy(temperature=temperature), torch_model), expected, rtol=1e-4, atol=1e-4)
    train, _, _ = answers(torch_model, TRAIN)
    known = np.exp(train - logsumexp(train, axis=1, keepdims=True))
    templates = [known[known.argmax(axis=1) == k].mean(axis=0) for k in range(4) if (known.argmax(axis=1) == k).any()]
    divergence = np.array([[stats.entropy(p, t) for t in templates] for p in probabilities])
    np.testing.assert_allclose(scored(make_monitor("kl_matching"), torch_model), -divergence.min(axis=1), atol=1e-4)


@pytest.mark.parametrize("range_", ["0-1", "imagenet"])
def test_odin(network: Any, range_: str) -> None:
    import torch

    model = TorchModel(network, size=8, name="small", range=range_)
    monitor = Odin(temperatures=(1.0, 1000.0), epsilons=(0.0, 0.002, 0.03))
    rows = represent_data(monitor.build(model), model, OUTLIERS)
    mean, std = (
        (0.0, 1.0) if range_ == "0-1" else np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
    )
    pixels = OUTLIERS.batch(slice(None)).images.transpose(0, 3, 1, 2) / 255

    def confidence(values: Any, temperature: float) -> Any:
        tensor = (values - torch.as_tensor(mean)) / torch.as_tensor(std)
        return torch.softmax(network.double()(tensor) / temperature, 1).max(1).values

    expected = []
    for temperature in monitor.temperatures:
        x = torch.tensor(pixels, dtype=torch.float64, requires_grad=True)
        confidence(x, temperature).log().sum().backward()
        for epsilon in monitor.epsilons:
            expected.append(confidence(x - epsilon * torch.sign(-x.grad), temperature).detach().numpy())
    network.float()
    np.testing.assert_allclose(rows, np.stack(expected, axis=1), atol=1e-4)
    # at a temperature of 1000 all confidences lie close to 1 / K: what is left is what must agree
    np.testing.assert_allclose(
        (rows[:, 3:] - 0.25) * 1000, (np.stack(expected, axis=1)[:, 3:] - 0.25) * 1000, atol=1e-3
    )
    assert (rows[:, 1] > rows[:, 0]).all()


def test_odin_chooses_on_validation_data(torch_model: TorchModel) -> None:
    monitor = Odin(temperatures=(1.0, 10.0), epsilons=(0.0, 0.1))
    built = monitor.build(torch_model)
    rng = np.random.default_rng(0)
    inside, outside = rng.random((2, 60, 4)).astype(np.float32)
    inside[:, 2] += 1
    calibrated = built.calibrate(inside, outside)
    assert monitor.choice(calibrated.rule) == (10.0, 0.0)
    assert not calibrated.reject(inside).any()
    inside[:, 3] += 2
    assert monitor.choice(built.calibrate(inside).rule) == (10.0, 0.1)
    assert len(Odin().temperatures) * len(Odin().epsilons) == 210
    assert (Odin().epsilons[0], Odin().epsilons[-1]) == (0.0, 0.004)


def test_odin_needs_one_gradient_per_temperature(torch_model: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    calls = []
    gradient = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: calls.append(1) or gradient(*a, **k))
    Odin(temperatures=(1.0, 2.0, 5.0)).build(torch_model).represent(torch_model, TEST.batch(slice(0, 5)))
    assert len(calls) == 3


def test_odin_id_takes_the_step_of_the_highest_mean_score_on_training_images(torch_model: TorchModel) -> None:
    magnitudes = (0.0, 0.0014, 0.0025, 0.01)
    grid = Odin(temperatures=(1000.0,), epsilons=magnitudes)
    means = represent_data(grid.build(torch_model), torch_model, TRAIN).mean(axis=0, dtype=np.float64)
    built = OdinId(magnitudes=magnitudes).build(torch_model, TRAIN)
    np.testing.assert_allclose(built.state["means"], means, rtol=1e-6)
    chosen = int(means.argmax())
    assert float(built.state["magnitude"]) == magnitudes[chosen]
    assert built.notes == (f"epsilon is {magnitudes[chosen]:g}: of 4 the highest mean score on 240 training images",)
    expected = represent_data(grid.build(torch_model), torch_model, OUTLIERS)[:, [chosen]]
    np.testing.assert_allclose(represent_data(built, torch_model, OUTLIERS), expected, atol=1e-7)
    assert {0.0, 0.0014, 0.0025} <= set(OdinId().magnitudes)


def test_odin_id_looks_at_a_fixed_choice_of_training_images(torch_model: TorchModel) -> None:
    class Watched(TorchModel):
        shown: ClassVar[list[str]] = []

        def stepped_logits(self, batch: Any, *rest: Any, **named: Any) -> Any:
            self.shown.extend(batch.ids)
            return super().stepped_logits(batch, *rest, **named)

    watched, told = Watched(torch_model.module, size=8, name="watched"), []
    training = LiveTraining(watched, TRAIN, ["images"])
    training.progress = told.append  # type: ignore[assignment]
    monitor = OdinId(magnitudes=(0.0, 0.01), most=7)
    first = monitor.build(watched, training)
    chosen = set(Watched.shown)
    assert len(chosen) == sum(told) == monitor.work(len(TRAIN)) == int(first.state["images"]) == 7
    Watched.shown.clear()
    backwards = monitor.build(watched, Subset(TRAIN, range(len(TRAIN))[::-1]))
    assert set(Watched.shown) == chosen
    np.testing.assert_allclose(backwards.state["means"], first.state["means"], rtol=1e-6)
    one = monitor.build(watched, Subset(TRAIN, [3]))
    assert int(one.state["images"]) == 1


def test_of_equal_means_the_first_magnitude_is_taken() -> None:
    class Flat(ToyModel):
        def stepped_logits(self, batch: Any, temperatures: Any, steps: Any) -> Any:
            return np.zeros((len(temperatures), len(steps), len(batch), 4), np.float32)

    assert float(OdinId().build(Flat(), TRAIN).state["magnitude"]) == 0.0
    for wrong in ({"temperature": 0.0}, {"magnitudes": ()}, {"magnitudes": (-0.1,)}, {"most": 0}):
        with pytest.raises(InputError, match="monitor odin_id: "):
            OdinId(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_doctor(temperature: float, torch_model: TorchModel) -> None:
    logits, _, _ = answers(torch_model, OUTLIERS)
    p = np.exp(logits / temperature - logsumexp(logits / temperature, axis=1, keepdims=True))
    gini, top = (p**2).sum(axis=1), p.max(axis=1)
    alpha, beta = (scored(Doctor(variant=v, temperature=temperature), torch_model) for v in ("alpha", "beta"))
    np.testing.assert_allclose(alpha, -(1 - gini) / gini, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(beta, -(1 - top) / top, rtol=1e-3, atol=1e-4)


def test_the_odds_of_an_error_at_their_edges() -> None:
    """By hand; uniform answers of K classes have the odds K - 1; near 1 the odds are those of exact fractions."""
    alpha, beta = error_odds([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(alpha, [0.62 / 0.38, 0.0, 2.0])
    np.testing.assert_allclose(beta, [1.0, 0.0, 2.0])
    small = 1e-30
    alpha, beta = error_odds([[1.0 - small, small, 0.0]])
    np.testing.assert_allclose([alpha[0], beta[0]], [2 * small, small])
    np.testing.assert_allclose(error_odds([[0.9, 0.1]], temperature=2.0)[1], [1 / 3])
    with pytest.raises(InputError, match="unknown variant of monitor doctor 'gamma'"):
        Doctor(variant="gamma")
    for temperature in (0.0, np.inf, True):
        with pytest.raises(InputError, match="monitor doctor: the temperature is a number above 0"):
            Doctor(temperature=temperature)


def test_mahalanobis(torch_model: TorchModel) -> None:
    _, features, labels = answers(torch_model, TRAIN)
    means = np.stack([features[labels == k].mean(axis=0) for k in range(4)])
    covariance = EmpiricalCovariance(assume_centered=True).fit(features - means[labels])
    _, asked, _ = answers(torch_model, OUTLIERS)
    distances = np.stack([covariance.mahalanobis(asked - mean) for mean in means], axis=1)
    np.testing.assert_allclose(scored(Mahalanobis(), torch_model), -distances.min(axis=1), rtol=1e-4)


def test_mahalanobis_is_safe_where_features_are_degenerate() -> None:
    class Degenerate(ToyModel):
        def features(self, batch: Any, layer: str) -> Any:
            values = super().features(batch, layer)
            return np.concatenate([1e4 + values, 1e4 + values, np.zeros_like(values)], axis=1)

    plain, odd = fitted(Mahalanobis()), Mahalanobis().build(Degenerate(), TRAIN)
    first, second = represent_data(plain, ToyModel(), TEST), represent_data(odd, Degenerate(), TEST)
    np.testing.assert_allclose(second, first, rtol=2e-2)


def test_features_that_outnumber_the_images() -> None:
    """Pixels as features, 192 of them, and 100 images: the covariance has no inverse, and half of it is left to ViM."""
    import torch

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).eval()
    model, few = TorchModel(plain, size=8, name="plain"), Subset(TRAIN, range(100))
    weights, bias = (value.detach().double().numpy() for value in (plain[1].weight, plain[1].bias))

    def pixels(data: Any) -> Any:
        return data.batch(slice(None)).images.transpose(0, 3, 1, 2).reshape(len(data), -1) / 255.0

    known, asked, labels = pixels(few), pixels(OUTLIERS), few.labels
    means = np.stack([known[labels == k].mean(axis=0) for k in range(4)])
    centred = known - means[labels]
    inverse = np.linalg.pinv(centred.T @ centred / 100, rcond=1e-10, hermitian=True)
    away = asked[:, None] - means
    monitor = Mahalanobis().build(model, few)
    found = represent_data(monitor, model, OUTLIERS)[:, 0]
    np.testing.assert_allclose(found, -np.einsum("nkd,de,nke->nk", away, inverse, away).min(axis=1), rtol=1e-3)
    origin = -np.linalg.pinv(weights) @ bias
    directions = np.linalg.svd(known - origin, full_matrices=True)[2][50:]
    lengths, virtual = (np.linalg.norm((rows - origin) @ directions.T, axis=1) for rows in (known, asked))
    scale = (known @ weights.T + bias).max(axis=1).mean() / lengths.mean()
    vim = Vim().build(model, few)
    expected = logsumexp(asked @ weights.T + bias, axis=1) - scale * virtual
    np.testing.assert_allclose(represent_data(vim, model, OUTLIERS)[:, 0], expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match="no feature leaves the principal space; give it fewer dimensions than 150"):
        Vim(dimensions=150).build(model, few)


def test_vim(torch_model: TorchModel, network: Any) -> None:
    logits, features, _ = answers(torch_model, TRAIN)
    weights, bias = network[-1].weight.detach().double().numpy(), network[-1].bias.detach().double().numpy()
    origin = -np.linalg.pinv(weights) @ bias
    covariance = EmpiricalCovariance(assume_centered=True).fit(features - origin).covariance_
    values, vectors = np.linalg.eig(covariance)
    residual = vectors[:, np.argsort(-values.real)[8:]].real
    alpha = logits.max(axis=1).mean() / np.linalg.norm((features - origin) @ residual, axis=1).mean()
    asked_logits, asked, _ = answers(torch_model, OUTLIERS)
    expected = logsumexp(asked_logits, axis=1) - alpha * np.linalg.norm((asked - origin) @ residual, axis=1)
    np.testing.assert_allclose(scored(Vim(dimensions=8), torch_model), expected, rtol=1e-4, atol=1e-4)


def test_react(torch_model: TorchModel, network: Any) -> None:
    _, features, _ = answers(torch_model, TRAIN)
    weights, bias = network[-1].weight.detach().double().numpy(), network[-1].bias.detach().double().numpy()
    _, asked, _ = answers(torch_model, OUTLIERS)
    cut = np.minimum(asked, np.quantile(features, 0.8))
    np.testing.assert_allclose(
        scored(React(quantile=0.8), torch_model), logsumexp(cut @ weights.T + bias, axis=1), atol=1e-4
    )
    whole = scored(React(quantile=1.0), torch_model)
    assert (whole >= scored(React(quantile=0.1), torch_model) - 1e-6).mean() != 0


def test_deep_knn(torch_model: TorchModel) -> None:
    normal = lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True)  # noqa: E731
    _, features, _ = answers(torch_model, TRAIN)
    _, asked, _ = answers(torch_model, OUTLIERS)
    expected = (
        NearestNeighbors(n_neighbors=10, algorithm="brute").fit(normal(features)).kneighbors(normal(asked))[0][:, -1]
    )
    np.testing.assert_allclose(scored(DeepKnn(k=10), torch_model), -expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:overflow encountered in power")
def test_openmax(torch_model: TorchModel) -> None:
    train, _, labels = answers(torch_model, TRAIN)
    asked, _, _ = answers(torch_model, OUTLIERS)
    centres, fits = [], []
    for k in range(4):
        own = train[(labels == k) & (train.argmax(axis=1) == k)]
        centre = own.mean(axis=0)
        d = [
            np.linalg.norm(v - centre) / 200 + 1 - v @ centre / np.linalg.norm(v) / np.linalg.norm(centre) for v in own
        ]
        tail = np.sort(d)[-20:]
        centres.append(centre)
        fits.append(stats.weibull_min.fit(tail, floc=tail[0] - 1))
    unknown = []
    for v in asked:
        ranked = np.argsort(-v)
        new, zero = v.copy(), 0.0
        for i, k in enumerate(ranked[:3]):
            far = (
                np.linalg.norm(v - centres[k]) / 200
                + 1
                - v @ centres[k] / np.linalg.norm(v) / np.linalg.norm(centres[k])
            )
            weight = 1 - stats.weibull_min.cdf(far, *fits[k]) * (3 - i) / 3
            new[k] = v[k] * weight
            zero += v[k] * (1 - weight)
        exponents = np.exp([zero, *new])
        unknown.append(exponents[0] / exponents.sum())
    np.testing.assert_allclose(scored(OpenMax(alpha=3), torch_model), 1 - np.array(unknown), atol=1e-4)


def test_openmax_says_which_classes_it_cannot_weigh() -> None:
    monitor = OpenMax()
    rows = np.flatnonzero(TRAIN.labels != 2)
    assert monitor.build(ToyModel(), Subset(TRAIN, rows.tolist())).notes == (
        "classes with fewer than 3 correct training images keep their logit: [2]",
    )
    wrong = Subset(TRAIN, range(len(TRAIN)))
    wrong.table = replace(wrong.table, labels=(wrong.labels + 1) % 4)
    with pytest.raises(InputError, match="correctly"):
        monitor.build(ToyModel(), wrong)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.8, 8), st.floats(0.1, 10), st.floats(-5, 5))
def test_the_weibull_fit_recovers_known_parameters(shape: float, scale: float, location: float) -> None:
    values = stats.weibull_min.rvs(shape, loc=location, scale=scale, size=4000, random_state=0)
    found = fit_weibull(values, location)
    assert found == pytest.approx((shape, scale), rel=0.06)


def test_the_distance_of_openmax() -> None:
    rows, centre = np.array([[3.0, 4.0], [0.0, 5.0]]), np.array([3.0, 4.0])
    np.testing.assert_allclose(distance(rows, centre), [0.0, np.sqrt(10) / 200 + 1 - 0.8], atol=1e-12)


def test_mc_dropout(network: Any, torch_model: TorchModel) -> None:
    sampler = McDropout(network, passes=9, seed=3, size=8, name="small")
    batch = TEST.batch(slice(0, 6))
    samples = sampler.predict(batch).samples
    assert samples is not None
    mean = samples[:7].astype(float).mean(axis=0)
    expected = (mean * np.log(mean)).sum(axis=1)
    np.testing.assert_allclose(McDropoutEntropy().build(sampler).represent(sampler, batch)[:, 0], expected, atol=1e-5)
    own = McDropoutEntropy(seed=3).build(torch_model).represent(torch_model, batch)[:, 0]
    np.testing.assert_allclose(own, expected, atol=1e-5)
    with pytest.raises(InputError, match="needs 12 stochastic passes but model small answers 9"):
        McDropoutEntropy(passes=12).build(sampler).represent(sampler, batch)


def test_a_network_without_dropout_is_refused() -> None:
    import torch

    plain = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)), size=8, name="plain")
    with pytest.raises(
        InputError, match="needs samples, which model plain does not give: supply a model that answers several"
    ):
        McDropoutEntropy().build(plain, TRAIN)


def test_random_is_blind() -> None:
    rows = represent_data(fitted(Random()), ToyModel(), TEST)[:, 0]
    assert stats.kstest(rows, "uniform").pvalue > 0.001
    batch = TEST.batch(slice(None))
    other = batch.with_images(255 - batch.images)
    np.testing.assert_array_equal(fitted(Random()).represent(ToyModel(), other)[:, 0], rows)
    assert (represent_data(fitted(Random(seed=1)), ToyModel(), TEST)[:, 0] != rows).all()


# Models


def save_mlp(path: Path, module: Any, last: str) -> OnnxModel:
    """Flatten, Linear, ReLU, Linear as an ONNX graph; the last layer is `gemm`, `transposed`, or `matmul` with Add."""
    from onnx import TensorProto, helper, numpy_helper, save

    node, (first, second) = helper.make_node, (module[1], module[3])
    weights = {
        "w1": first.weight.T,
        "b1": first.bias,
        "w2": second.weight if last == "transposed" else second.weight.T,
        "b2": second.bias,
    }
    if last == "matmul":
        ending = [node("MatMul", ["hidden", "w2"], ["scaled"]), node("Add", ["b2", "scaled"], ["logits"])]
    else:
        ending = [node("Gemm", ["hidden", "w2", "b2"], ["logits"], transB=int(last == "transposed"))]
    graph = helper.make_graph(
        [
            node("Flatten", ["image"], ["pixels"]),
            node("Gemm", ["pixels", "w1", "b1"], ["inner"]),
            node("Relu", ["inner"], ["hidden"]),
            *ending,
            node("Softmax", ["logits"], ["probabilities"]),
        ],
        "mlp",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(value.detach().numpy().copy(), name) for name, value in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return OnnxModel(path)


@pytest.fixture(scope="module")
def mlp() -> Any:
    import torch

    torch.manual_seed(1)
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


@pytest.mark.parametrize("last", ["gemm", "transposed", "matmul"])
def test_the_last_layer_of_an_onnx_graph_is_found(tmp_path: Path, mlp: Any, last: str) -> None:
    model = save_mlp(tmp_path / "mlp.onnx", mlp, last)
    head = find_head(model)
    assert head.layer == penultimate(model) == "hidden"
    np.testing.assert_array_equal(head.weights, mlp[3].weight.detach())
    np.testing.assert_array_equal(head.bias, mlp[3].bias.detach())
    twin = TorchModel(mlp, size=8, name="twin")
    for make in (Mahalanobis, Vim, React):
        np.testing.assert_allclose(scored(make(), model), scored(make(), twin), rtol=1e-3, atol=1e-3)


def test_the_last_layer_of_a_torch_model_is_found(torch_model: TorchModel, network: Any) -> None:
    import torch

    batch, head = TEST.batch(slice(0, 4)), find_head(torch_model)
    made = torch_model.features(batch, head.layer) @ head.weights.T + head.bias
    np.testing.assert_allclose(made, torch_model.predict(batch).logits, atol=1e-5)
    np.testing.assert_array_equal(torch_model.features(batch, "6:input"), torch_model.features(batch, "5"))
    named = TorchModel(network, size=8, name="small", classes=("a", "b", "c", "d"))
    np.testing.assert_array_equal(find_head(align(named, ("d", "c", "b", "a"))).weights, head.weights[::-1])
    ends_elsewhere = TorchModel(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 8), torch.nn.Flatten()), size=8, name="conv")
    with pytest.raises(InputError, match="does not end in a Linear"):
        find_head(ends_elsewhere)
    with pytest.raises(InputError, match="shows no last linear layer"):
        find_head(CallableModel(lambda images: np.full((len(images), 4), 0.25), num_classes=4, version="1"))


def test_a_layer_that_does_not_make_the_logits_is_refused() -> None:
    import torch

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(192, 4)

        def forward(self, x: Any) -> Any:
            return 10 * self.last(x.flatten(1))

    with pytest.raises(InputError, match="its last linear layer does not make its logits"):
        Vim().build(TorchModel(Scaled(), size=8, name="scaled"), TRAIN)


def test_a_black_box_is_refused_with_what_to_supply(tmp_path: Path, mlp: Any) -> None:
    onnx = save_mlp(tmp_path / "box.onnx", mlp, "gemm")
    with pytest.raises(InputError) as refusal:
        Odin().check(onnx)
    assert str(refusal.value) == (
        "monitor odin needs gradients, which model box does not give: supply a torch model (a module, or weights with "
        "their architecture) in place of a black box"
    )
    black = CallableModel(lambda images: np.full((len(images), 4), 0.25), num_classes=4, version="1", name="black")
    for name in ("energy", "mahalanobis", "score_svm", "openmax", "mc_dropout"):
        with pytest.raises(InputError, match=r"monitor \w+ needs \w+, which model black does not give: supply "):
            make_monitor(name).check(black)
    Msp().check(black)


# The role


@pytest.mark.parametrize("name", ["kl_matching", "mahalanobis", "openmax"])
def test_one_class_is_refused(name: str) -> None:
    one = Subset(TRAIN, np.flatnonzero(TRAIN.labels == 1).tolist(), name="one")
    with pytest.raises(InputError, match="at least 2 classes: one has 1"):
        make_monitor(name).build(ToyModel(), one)


def test_other_settings_are_another_monitor() -> None:
    first, second = KnnSvm(k=1), replace(KnnSvm(k=1), k=2)
    assert fitted(first).fingerprint() != fitted(second).fingerprint()
    with pytest.raises(AttributeError):
        first.k = 3  # type: ignore[misc]
    assert KnnSvm(k=1).recipe(ToyModel(), TRAIN).hash != KnnSvm(k=2).recipe(ToyModel(), TRAIN).hash
    half = Subset(TRAIN, range(100))
    assert KnnSvm().recipe(ToyModel(), TRAIN).hash != KnnSvm().recipe(ToyModel(), half).hash
    assert KnnSvm().recipe(ToyModel(), TRAIN).hash != KnnSvm().recipe(ToyModel(), TRAIN, size=32).hash


def test_settings_by_name() -> None:
    with pytest.raises(InputError, match="did you mean 'k'"):
        make_monitor("knn_svm", kk=3)
    with pytest.raises(InputError, match="knn_svm monitor setting k cannot be 'two'"):
        make_monitor("knn_svm", k="two")
    with pytest.raises(InputError, match="did you mean 'energy'"):
        make_monitor("enrgy")
    with pytest.raises(InputError, match="lacks its parameter detector"):
        make_monitor("pytorch_ood")
    assert make_monitor("odin", temperatures=[1.0, 2.0]).parameters()["temperatures"] == (1.0, 2.0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (partial(KnnSvm, k=0), "monitor knn_svm: k is a whole number of at least 1, not 0"),
        (partial(DeepKnn, k=-5), "monitor deep_knn: k is a whole number of at least 1, not -5"),
        (partial(DeepKnn, k=2.5), "k is a whole number of at least 1, not 2.5"),
        (partial(DeepKnn, layer=3), "monitor deep_knn: layer is the name of a layer of the model, or None, not 3"),
        (partial(Mahalanobis, layer=""), "monitor mahalanobis: layer is the name"),
        (partial(Vim, dimensions=-1), "monitor vim: dimensions is a whole number of at least 0, not -1"),
        (partial(McDropoutEntropy, passes=0), "passes is a whole number of at least 1, not 0"),
        (partial(OpenMax, tail=2), "tail is a whole number of at least 3, not 2"),
        (partial(OpenMax, alpha="all"), "alpha is a whole number of at least 1, not 'all'"),
    ],
)
def test_settings_are_checked_when_they_are_given(make: Callable[[], Monitor], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def test_prior_and_cost_move_the_decision() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1, 1, (500, 1)), rng.normal(-1, 1, (300, 1))
    shares = {}
    for cost in (0.1, 1.0, 10.0):
        for monitor in (Msp(), ScoreSvm()):
            shares[monitor.name, cost] = fitted(monitor).calibrate(inside, outside, cost=cost).reject(inside).mean()
    assert shares["msp", 0.1] < shares["msp", 1.0] < shares["msp", 10.0]
    assert shares["score_svm", 0.1] < shares["score_svm", 1.0] < shares["score_svm", 10.0]
    assert fitted(monitor).calibrate(inside, outside, threshold="hinge").threshold == 0.0


def test_saved_monitors_are_checked_when_loaded(tmp_path: Path, torch_model: TorchModel) -> None:
    fitted(Mahalanobis()).save(tmp_path)
    assert isinstance(FittedMonitor.load(tmp_path, ToyModel()).monitor, Mahalanobis)
    with pytest.raises(InputError, match="holds a monitor without a threshold: load it as a FittedMonitor"):
        load_monitor(tmp_path)
    with pytest.raises(InputError, match="built on another model than small"):
        load_monitor(tmp_path, torch_model)
    with pytest.raises(InputError, match="holds a monitor mahalanobis, not vim"):
        FittedMonitor.load(tmp_path, kind=Vim)
    record = json.loads((tmp_path / "monitor.json").read_text())
    (tmp_path / "monitor.json").write_text(json.dumps({**record, "format": 99}))
    with pytest.raises(InputError, match="format 99"):
        load_monitor(tmp_path)
    fitted(Mahalanobis()).save(tmp_path)
    np.savez(tmp_path / "monitor.npz", a=np.array([print], dtype=object))
    with pytest.raises(InputError, match=r"monitor\.npz is missing or was changed: .* save the monitor, again"):
        load_monitor(tmp_path)
    as_before(tmp_path)
    np.savez(tmp_path / "monitor.npz", a=np.zeros(3))
    with pytest.raises(InputError, match="not the file that was saved"):
        load_monitor(tmp_path)
    (tmp_path / "monitor.json").write_text("[]")
    with pytest.raises(InputError, match="not a valid record of a monitor"):
        load_monitor(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        load_monitor(tmp_path / "nowhere")


def test_a_record_that_was_edited_is_refused(tmp_path: Path) -> None:
    monitor = fitted(Energy()).calibrate(np.arange(40.0)[:, None])
    monitor.save(tmp_path)
    path = tmp_path / "monitor.json"
    record = json.loads(path.read_text())
    changes: list[dict[str, Any]] = [{"built_from": ["x"]}, {"aim": {**record["aim"], "prior": 0.9}}]
    changes += [{"parameters": {"temperature": 9.0}}, {"calibrated_on": ["x"]}]
    for change in changes:
        path.write_text(json.dumps(record | change))
        with pytest.raises(InputError, match=r"monitor\.json is missing or was changed"):
            load_monitor(tmp_path)
    monitor.save(tmp_path)
    commit(tmp_path, {}, ["monitor.json"])
    with pytest.raises(InputError, match="does not name the monitor that lies there"):
        load_monitor(tmp_path)
    record = as_before(tmp_path)
    for change in changes:
        path.write_text(json.dumps(record | change))
        with pytest.raises(InputError, match="was edited since the monitor was saved"):
            load_monitor(tmp_path)
    before = {key: value for key, value in record.items() if key not in ("digest", "code", "columns")}
    path.write_text(json.dumps(before))
    assert load_monitor(tmp_path).threshold == monitor.threshold
    damages = {"built_from": 3, "calibrated_on": [1], "aim": {"prior": "half"}, "parameters": [], "monitor": []}
    for key, damage in damages.items():
        path.write_text(json.dumps(before | {key: damage}))
        with pytest.raises(InputError, match=f"is damaged, its {key} cannot be read"):
            load_monitor(tmp_path)


OWN = """
from dataclasses import dataclass
from roadworthy.monitors import Monitor

@dataclass(frozen=True, kw_only=True)
class Grey(Monitor):
    name = "grey"

    def read(self, signals, state):
        return signals.images.mean(axis=(1, 2, 3))
"""


def test_a_monitor_whose_code_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "own_grey", None)
    grey, file = import_text(OWN, tmp_path / "own_grey.py").Grey(), tmp_path / "own_grey.py"
    fitted(grey).save(tmp_path / "saved")
    FittedMonitor.load(tmp_path / "saved", kind=import_text(OWN + "\n# a remark\n", file).Grey)
    with pytest.raises(
        InputError, match="holds a monitor grey; its code has changed since it was saved: build it anew"
    ):
        FittedMonitor.load(tmp_path / "saved", kind=import_text(OWN.replace(".mean", ".max"), file).Grey)


def test_settings_that_cannot_be_saved_leave_the_folder_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="monitor own: its setting floor must be a plain value to be saved"):
        fitted(own_with(np.float32(1))()).save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_thresholds_of_infinity_are_saved(tmp_path: Path) -> None:
    fitted(Msp()).calibrate(np.ones((3, 1)), np.ones((3, 1))).save(tmp_path)
    assert load_monitor(tmp_path).threshold == -np.inf


def test_a_pickle_in_disguise_is_not_read(tmp_path: Path) -> None:
    fitted(Msp()).save(tmp_path)
    np.savez(tmp_path / "monitor.npz", threshold=np.array([{"a": 1}], dtype=object))
    commit(tmp_path, {}, ["monitor.json", "monitor.npz"])
    for _ in range(2):
        with pytest.raises(InputError, match="plain arrays"):
            load_monitor(tmp_path)
        if (tmp_path / "manifest.json").exists():
            as_before(tmp_path)


def test_calibration_refuses_what_does_not_fit() -> None:
    rows = np.zeros((3, 2), np.float32)
    for inside, outside, sentence in (
        (rows, rows[:, :1], "2 columns inside but 1"),
        (rows[:0], rows, "without in-distribution images"),
        (rows, rows[:0], "without outliers"),
        (rows[0], None, r"must be \(N, D\)"),
        (np.full((3, 2), np.nan), None, "NaN or infinity in 3 of 3"),
    ):
        with pytest.raises(InputError, match=sentence):
            fitted(Msp()).calibrate(inside, outside)
    for aim, sentence in (({"rejected": -0.1}, "to reject"), ({"prior": np.nan}, "prior"), ({"cost": 0.0}, "cost")):
        for outside in (None, rows):
            with pytest.raises(InputError, match=sentence):
                fitted(Msp()).calibrate(rows, outside, **aim)


def test_scores_are_of_the_columns_calibrated_with(tmp_path: Path) -> None:
    monitor = fitted(Msp()).calibrate(np.zeros((3, 1)))
    monitor.save(tmp_path)
    for each in (monitor, load_monitor(tmp_path)):
        with pytest.raises(InputError, match="monitor msp was calibrated on representations of 1 columns, not 2"):
            each.score(np.zeros((3, 2)))
        assert each.decide(ToyModel(), TEST.batch(slice(0, 0))).shape == (0,)


def test_threads_are_put_back_by_the_last_one_out() -> None:
    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    outer, inner = one_thread(), one_thread()
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert set(threads()) == {1}
    inner.__exit__(None, None, None)
    assert threads() == before


def test_a_model_of_a_fixed_batch_is_served() -> None:
    class Fixed(ToyModel):
        fixed_batch = 7

        def features(self, batch: Any, layer: str) -> Any:
            assert len(batch) == 7
            return super().features(batch, layer)

    monitor, reference = Mahalanobis().build(Fixed(), TRAIN), fitted(Mahalanobis())
    ours, theirs = represent_data(monitor, Fixed(), TEST), represent_data(reference, ToyModel(), TEST)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


# Signals and training data


class Asked(ToyModel):
    """Counts what it is asked for, and how many images at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []

    def predict(self, batch: Any) -> Any:
        self.asked.append(("predict", len(batch)))
        return super().predict(batch)

    def features(self, batch: Any, layer: str) -> Any:
        self.asked.append((layer, len(batch)))
        return super().features(batch, layer)


def test_every_signal_is_asked_once_for_all_monitors() -> None:
    others = {"odin", "odin_id", *OWN_NETWORKS}
    plain = [CASES[name]() for name in MONITORS if name in CASES and name not in others]
    built, model, batch = [fitted(monitor) for monitor in plain], Asked(), TEST.batch(slice(None))
    signals = Signals(model, batch)
    shared = [each.represent_signals(signals) for each in built]
    assert sorted(model.asked) == [("hidden", 64)] * 2 + [("predict", 64)] * 2
    for rows, each in zip(shared, built, strict=True):
        np.testing.assert_array_equal(rows, each.represent(ToyModel(), batch))


NAMED = ("features", "samples", "images", "logits", "activations:hidden", "probabilities", "labels")


def test_the_bits_of_a_signal_do_not_depend_on_what_else_is_read(torch_model: TorchModel) -> None:
    batch = TEST.batch(slice(0, 70))
    for names in (NAMED, NAMED[::-1], *((name,) for name in NAMED)):
        signals = Signals(ToyModel(), batch)
        for name in names:
            assert len(signals[name]) == 70
            assert not signals[name].flags.writeable
            np.testing.assert_array_equal(signals[name], Signals(ToyModel(), batch)[name])
    answer = torch_model.answer(batch, 64)
    np.testing.assert_array_equal(Signals(torch_model, batch).probabilities, answer.probabilities)
    sixteen = np.concatenate([Signals(torch_model, batch.take([*range(64)]))["logits"], answer.logits[64:]])
    np.testing.assert_array_equal(Signals(torch_model, batch).logits, sixteen)


def test_the_last_layer_is_looked_up_once_per_network() -> None:
    asked: list[ToyModel] = []

    class Counted(ToyModel):
        def head(self) -> Head:
            asked.append(self)
            return super().head()

    models = Counted(), Counted()
    for model in models:
        for start in (0, 70, 140):
            Signals(model, TRAIN.batch(slice(start, start + 70))).features()
    assert asked == [*models]


def test_signals_of_layers_and_what_is_not_given(torch_model: TorchModel) -> None:
    batch = TEST.batch(slice(0, 5))
    signals = Signals(torch_model, batch)
    maps = signals.activations("1")
    assert maps.shape == (5, 8, 6, 6)
    np.testing.assert_array_equal(signals.features("1"), maps.mean(axis=(2, 3)))
    np.testing.assert_array_equal(signals.features(), signals[full_name("features")])
    assert full_name("features:1") == "features:1"
    for ask in (lambda: signals["logit"], lambda: full_name("logit")):
        with pytest.raises(InputError, match="did you mean 'logits'"):
            ask()
    with pytest.raises(InputError, match="model small gives no samples: supply a model that answers several passes"):
        signals["samples"]
    black = CallableModel(lambda images: np.full((len(images), 4), 0.25), num_classes=4, version="1", name="black")
    with pytest.raises(InputError, match="model black gives no logits: supply a model that answers logits"):
        Signals(black, batch).logits  # noqa: B018

    class Short(ToyModel):
        def features(self, batch: Any, layer: str) -> Any:
            return super().features(batch, layer)[1:]

    with pytest.raises(ModelError, match=r"layer 'hidden' of model toy gives \(63, 24\) for 64 images"):
        Signals(Short(), batch).features()


class StoredTraining(Training):
    """Signals that were stored before, as an engine would read them."""

    def __init__(self, data: Any, arrays: dict[str, Any]) -> None:
        super().__init__(ToyModel(), data, [*arrays])
        self.arrays = arrays | {"labels": data.labels}

    def read(self, rows: slice, names: Any) -> Any:
        return tuple(self.arrays[name][rows] for name in names)


def test_a_fit_does_not_see_whether_its_signals_were_stored() -> None:
    model, batch = Asked(), TRAIN.batch(slice(None))
    for name, make in CASES.items():
        monitor = make()
        if monitor.learns and name not in OWN_NETWORKS:
            stored = {each: Signals(ToyModel(), batch)[each] for each in monitor.signals(model)}
            model.asked.clear()
            built = monitor.build(model, StoredTraining(TRAIN, stored))
            assert model.asked == [], name
            assert built.fingerprint() == fitted(monitor).fingerprint()
            for key, array in fitted(monitor).state.items():
                np.testing.assert_array_equal(built.state[key], array)


def test_a_fit_announces_its_signals_and_reads_them_in_one_pass() -> None:
    names = {name: CASES[name]().signals(ToyModel()) for name in MONITORS if name in CASES}
    assert {name: signals for name, signals in names.items() if signals} == {
        "activation_patterns": ("features:penultimate", "probabilities"),
        "bnn_svm": ("images",),
        "ash": ("features:penultimate", "logits"),
        "boxes": ("features:penultimate", "probabilities"),
        "combined": ("images",),
        "deep_knn": ("features:penultimate",),
        "dice": ("features:penultimate", "logits"),
        "fdbd": ("features:penultimate", "logits"),
        "kl_matching": ("probabilities",),
        "knn_svm": ("images",),
        "mahalanobis": ("features:penultimate",),
        "mnn_svm": ("images",),
        "neco": ("features:penultimate", "logits"),
        "nnguide": ("features:penultimate", "logits"),
        "odin_id": ("images",),
        "openmax": ("logits",),
        "react": ("features:penultimate", "logits"),
        "relative_mahalanobis": ("features:penultimate",),
        "residual": ("features:penultimate", "logits"),
        "scale": ("features:penultimate", "logits"),
        "she": ("features:penultimate", "probabilities"),
        "temperature_msp": ("logits",),
        "vim": ("features:penultimate", "logits"),
        "vnn_svm": ("images",),
    }
    assert Mahalanobis(layer="inner").signals(ToyModel()) == ("features:inner",)
    for monitor, asked in ((Vim(), {"hidden", "predict"}), (DeepKnn(k=3), {"hidden"}), (KnnSvm(), set())):
        model = Asked()
        monitor.build(model, TRAIN)
        assert sorted(model.asked) == sorted((each, 64) for each in asked for _ in range(4))


def test_training_data_comes_in_parts_or_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals_module, "PART", 100)
    training = LiveTraining(ToyModel(), TRAIN, ["features:penultimate", "images"])
    sizes = [(len(features), len(labels)) for features, labels in training.parts("features", "labels")]
    assert sizes == [(100, 100), (100, 100), (40, 40)]
    np.testing.assert_array_equal(training.gather("images"), TRAIN.batch(slice(None)).images)
    np.testing.assert_array_equal(training.gather("labels"), training.labels)
    assert (len(training), training.ids, training.groups) == (len(TRAIN), TRAIN.ids, TRAIN.groups)
    assert training.class_names == TRAIN.class_names
    with pytest.raises(InputError, match="the signal logits was not announced"):
        training.gather("logits")


@dataclass(frozen=True, kw_only=True)
class Between(Monitor):
    """Where an image lies between the mean features of the source and those of validation outliers."""

    name = "between"
    needs = frozenset({"features"})
    learns_from = ("train", "valid_outliers")

    def fit(self, training: Any) -> Any:
        inside, outside = (each.gather("features").mean(axis=0) for each in (training, training.outliers))
        return {"direction": inside - outside}

    def read(self, signals: Any, state: Any) -> Any:
        return signals.features() @ state["direction"]


def test_a_monitor_that_learns_from_validation_outliers() -> None:
    check_monitor(Between)
    check_usefulness(Between)
    built = Between().build(ToyModel(), TRAIN, outliers=OUTLIERS)
    assert built.built_from == (ToyModel().fingerprint(), TRAIN.fingerprint(), OUTLIERS.fingerprint())
    other = Between().build(ToyModel(), TRAIN, outliers=Subset(OUTLIERS, range(50)))
    assert other.fingerprint() != built.fingerprint()
    recipes = [Between().recipe(ToyModel(), TRAIN, outliers=data).hash for data in (OUTLIERS, HELD_OUT)]
    assert recipes[0] != recipes[1]
    with pytest.raises(InputError, match=r"monitor between learns from validation outliers \(outliers=\): give them"):
        Between().build(ToyModel(), TRAIN)
    with pytest.raises(InputError, match="monitor msp does not learn from outliers"):
        Msp().build(ToyModel(), TRAIN, outliers=OUTLIERS)
    with pytest.raises(InputError, match="did you mean 'valid_outliers'"):
        own(learns_from=("train", "valid_outlier"))().check(ToyModel())


# Three values


def test_two_calibrations_live_side_by_side() -> None:
    built = fitted(Mahalanobis())
    inside, outside = (represent_data(built, ToyModel(), data) for data in (HELD_OUT, OUTLIERS))
    alone = built.calibrate(inside)
    threshold, before = alone.threshold, alone.reject(outside)
    against = built.calibrate(inside, outside, cost=5.0)
    assert against.threshold != alone.threshold == threshold
    np.testing.assert_array_equal(alone.reject(outside), before)
    assert alone.fingerprint() != against.fingerprint()
    assert built.calibrate(inside).fingerprint() == alone.fingerprint()
    for value, field in ((built, "state"), (alone, "threshold"), (alone.fitted, "built_from")):
        with pytest.raises(AttributeError):
            setattr(value, field, None)
    for array in built.state.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(TypeError):
        built.state["means"] = np.zeros(1)  # type: ignore[index]


def test_decide_shows_the_model_one_image_and_no_other() -> None:
    built = fitted(Msp())
    calibrated = built.calibrate(represent_data(built, ToyModel(), HELD_OUT))
    for images, asked in ((1, [1]), (5, [5]), (70, [64, 64]), (0, [])):
        model = Asked()
        assert calibrated.decide(model, TEST.batch(slice(0, images))).shape == (images,)
        assert [size for _, size in model.asked] == asked


GOLDEN = Path(__file__).parent / "golden" / "schema1" / "od_test"


def test_monitors_that_earlier_versions_saved_can_be_loaded() -> None:
    saved = sorted(path.parent for path in GOLDEN.glob("artifacts/*/monitor.json"))
    loaded = [FittedMonitor.load(folder) for folder in saved]
    assert len({each.monitor.name for each in loaded}) == 12
    assert all(each.notes == () or "classes" in each.notes[0] for each in loaded)


# pytorch-ood


def stub_detectors() -> types.ModuleType:
    """The part of pytorch-ood's interface that the adapter relies on, with two detectors."""
    import torch

    class EnergyBased:
        requires_fit = False

        def __init__(self, model: Any, t: float = 1.0) -> None:
            self.model, self.t = model, t

        def predict(self, x: Any) -> Any:
            return -self.t * torch.logsumexp(self.model(x) / self.t, dim=1)

    class Centre:
        requires_fit = True

        def __init__(self, encoder: Any, w: Any, power: int) -> None:
            self.encoder, self.w, self.power, self.mean = encoder, w, power, None

        def fit(self, loader: Any) -> Any:
            assert len(loader) == len(list(loader))
            self.mean = torch.cat([self.encoder(x).detach() for x, _ in loader]).mean(0)
            return self

        def predict(self, x: Any) -> Any:
            return (self.encoder(x) - self.mean).norm(dim=1) ** self.power

    module = types.ModuleType("pytorch_ood.detector")
    module.__dict__.update(EnergyBased=EnergyBased, Centre=Centre, __all__=["EnergyBased", "Centre"])
    return module


def test_detectors_of_pytorch_ood(torch_model: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_ood", types.ModuleType("pytorch_ood"))
    monkeypatch.setitem(sys.modules, "pytorch_ood.detector", stub_detectors())
    monitor = PytorchOod(detector="EnergyBased", options={"t": 2.0})
    np.testing.assert_allclose(scored(monitor, torch_model), scored(Energy(temperature=2.0), torch_model), rtol=1e-5)
    check_monitor(partial(PytorchOod, detector="Centre", options={"power": 2}), model=torch_model)
    with pytest.raises(InputError, match="did you mean 'Centre'"):
        PytorchOod(detector="Center").build(torch_model, TRAIN)
    with pytest.raises(InputError, match=r"power.*give it in options"):
        PytorchOod(detector="Centre").build(torch_model, TRAIN)


def test_pytorch_ood_where_it_cannot_be_imported(torch_model: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_ood.detector", None)
    with pytest.raises(InputError, match="needs the package pytorch-ood, which cannot be imported here"):
        PytorchOod(detector="EnergyBased").build(torch_model, TRAIN)


# The docs


def python_blocks(page: str) -> list[str]:
    text = (Path(__file__).parent.parent / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_monitor_of_ones_own_works() -> None:
    (code,) = python_blocks("own_monitor.md")
    assert len([line for line in code.splitlines() if line.strip()]) < 30
    try:
        exec(code, {"__name__": "__main__"})
        assert make_monitor("sharpness", floor=2.0).parameters() == {"floor": 2.0}
    finally:
        MONITORS._members.pop("sharpness", None)


def test_the_example_in_the_docs_works(tmp_path: Path, mlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import cv2

    monkeypatch.chdir(tmp_path)
    save_mlp(tmp_path / "my.onnx", mlp, "gemm")
    batch = HELD_OUT.batch(slice(0, 80))
    for row, (image, label) in enumerate(zip(batch.images, batch.labels, strict=True)):
        path = tmp_path / "signs" / "test" / HELD_OUT.class_names[label] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image[..., ::-1])
    (code,) = python_blocks("monitors.md")
    names: dict[str, Any] = {}
    exec(code, names)
    rejected = names["monitor"].reject(represent_data(names["fitted"], names["model"], names["held_out"]))
    assert rejected.sum() == 2


def test_the_table_in_the_docs_names_every_monitor() -> None:
    text = (Path(__file__).parent.parent / "docs" / "monitors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| ([a-z, ]+) \|", text, re.MULTILINE))
    assert rows.pop("combined") == "what its parts need"
    assert rows == {name: ", ".join(sorted(MONITORS.get(name).needs)) for name in MONITORS if name != "combined"}
