"""Known answers of monitors: scores and decisions on the fixed images of the conformance test and its small network.

Where a score has a closed form, numbers are compared with it. The others are fitted, tuned against outliers and
compared bit by bit with what was recorded.
"""

from __future__ import annotations

import csv
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import Dataset, Model
from roadworthy.data import Subset
from roadworthy.selftest.items import Item, Values

KIND = "monitors"
SHOWN = 12
"""Images inside, and as many outliers, whose scores are compared."""
SMALL: dict[str, Any] = {"width": 8, "epochs": 2, "batch": 24, "learning_rate": 0.02}
"""Settings of networks of a monitor's own that are trained in a moment."""
SMALL_AUTOENCODER = SMALL | {"width": 4, "most_width": 8, "bottleneck": 8}
OWN_NETWORKS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("ae_threshold", "mnn_svm", "bnn_svm"), SMALL_AUTOENCODER),
    "vnn_svm": {"k": 2, **SMALL_AUTOENCODER},
    **dict.fromkeys(("logistic_svm", "bin_class"), SMALL),
    "deep_ensemble": {"members": 2, **SMALL},
    "pixelcnn": {**SMALL, "epochs": 1, "blocks": 1, "images": 40, "drawn": 1},
}
"""Monitors that train networks of their own, and with which settings here."""
OF_TORCH: dict[str, dict[str, Any]] = {
    "mahalanobis_full": {"epsilons": (0.0, 0.01), "most": 60},
    "rankfeat": {},
    "robustness_radius": {},
}
"""Monitors that reach into torch networks."""
SETTINGS: dict[str, dict[str, Any]] = {
    "deep_knn": {"k": 10},
    "combined": {"of": ("msp", "energy", {"monitor": "knn_svm", "k": 4}), "rule": "majority"},
    "temperature_msp": {"temperature": 2.5},
    "residual": {"dimensions": 6},
    "nnguide": {"k": 10, "alpha": 1.0},
    **OWN_NETWORKS,
    **OF_TORCH,
}
CLOSED_FORM = (
    *("msp", "max_logit", "energy", "entropy", "margin", "gen", "temperature_msp", "gradnorm", "doctor"),
    *("she", "fdbd", "mahalanobis", "relative_mahalanobis", "residual", "nnguide", "deep_knn"),
)
"""Monitors whose score of one image is a formula of what the network says of it and of the training images."""
FROM_FILES = ("callable", "onnx_monitor", "stored")
TRAINED_TOLERANCE, TOLERANCE = 0.1, 1e-3
"""How far scores and decisions may differ in the mean on another type of machine, as a share of their mean size."""
CODE = """
def score(images):
    return images.mean(axis=(1, 2, 3)) / 255.0
"""


def items() -> Iterator[Item]:
    """All items of this kind."""
    from roadworthy.monitors import MONITORS

    for name in MONITORS:
        monitor = MONITORS.get(name)
        if not is_built_in(monitor):
            continue
        item = partial(Item, KIND, name, f"{monitor.__module__}:{monitor.__qualname__}")
        if name == "pytorch_ood":
            yield item(_of_pytorch_ood, needs="pytorch_ood")
        elif name in CLOSED_FORM:
            yield item(partial(_scores, name))
        elif name in FROM_FILES:
            yield item(partial(_of_a_file, name))
        else:
            needs = "torch" if name in OWN_NETWORKS or name in OF_TORCH else ""
            yield item(partial(_decided, name), summary, needs, relative=True)


def names() -> list[tuple[str, bool]]:
    """Every monitor, and whether it is ours."""
    from roadworthy.monitors import MONITORS

    return [(name, is_built_in(MONITORS.get(name))) for name in MONITORS]


def tolerance(name: str) -> float:
    """The tolerance of a monitor's scores and decisions on another type of machine."""
    return TRAINED_TOLERANCE if name in OWN_NETWORKS else TOLERANCE


def summary(values: NDArray[Any]) -> list[float]:
    """Scores, and decisions as 0 and 1, to six digits."""
    return [float(f"{number:.6g}") for number in values.astype(np.float64)]


@cache
def data() -> tuple[Dataset, Dataset, Dataset, Dataset]:
    """Training, held-out and shown images inside, and outliers."""
    from roadworthy.monitors.conformance import toy_data

    train, held_out, test, outliers = toy_data()
    return train, held_out, Subset(test, range(SHOWN)), outliers


def shown() -> tuple[Dataset, Dataset]:
    """The images inside and the outliers whose scores are compared."""
    _, _, inside, outliers = data()
    return inside, Subset(outliers, range(SHOWN))


def toy_model() -> Model:
    """The small network of the conformance test, of numpy alone."""
    from roadworthy.monitors.conformance import ToyModel

    return ToyModel()


@cache
def torch_model() -> Model:
    """The same network in torch, with a convolution before it that changes nothing."""
    import torch

    from roadworthy.models import TorchModel

    toy: Any = toy_model()
    side, channels = 8, 3
    network = torch.nn.Sequential(
        torch.nn.Conv2d(channels, channels, 1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(side * side * channels, len(toy.inner)),
        torch.nn.ReLU(),
        torch.nn.Linear(len(toy.inner), toy.num_classes),
    )
    by_channel = toy.inner.reshape(-1, side, side, channels).transpose(0, 3, 1, 2).reshape(len(toy.inner), -1)
    values = {
        "0.weight": np.eye(channels)[:, :, None, None],
        "0.bias": np.zeros(channels),
        "3.weight": by_channel,
        "3.bias": -0.5 * by_channel.sum(axis=1),
        "5.weight": toy.outer,
        "5.bias": toy.offset,
    }
    network.load_state_dict({key: torch.from_numpy(np.array(value, np.float32)) for key, value in values.items()})
    return TorchModel(network.eval(), size=side, name="toy in torch")


def _made(name: str, monitor: Any) -> Any:
    return monitor.of(SETTINGS.get(name, {}))


def _fitted(name: str, monitor: Any) -> tuple[Any, Model]:
    train, _, _, outliers = data()
    made = _made(name, monitor)
    model = torch_model() if name in OF_TORCH else toy_model()
    return made.build(model, train, outliers=outliers if made.learns_from_outliers else None), model


def _rows(fitted: Any, model: Model) -> NDArray[Any]:
    from roadworthy.monitors import represent_data

    return np.concatenate([represent_data(fitted, model, part) for part in shown()])


def _scores(name: str, monitor: Any) -> Values:
    """Scores as they are, before any calibration."""
    from roadworthy.monitors import Learned

    fitted, model = _fitted(name, monitor)
    return {"scores": fitted.scores(_rows(fitted, model), Learned())}


def _decided(name: str, monitor: Any) -> Values:
    """Scores and decisions of the monitor, calibrated against outliers."""
    from roadworthy.monitors import TiesWarning, represent_data

    fitted, model = _fitted(name, monitor)
    _, held_out, _, outliers = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TiesWarning)
        calibrated = fitted.calibrate(*(represent_data(fitted, model, part) for part in (held_out, outliers)))
    rows = _rows(fitted, model)
    return {"scores": calibrated.score(rows).astype(np.float64), "rejected": calibrated.reject(rows)}


def _of_a_file(name: str, monitor: Any) -> Values:
    """The mean brightness of an image, as a function, as an ONNX graph and as stored scores."""
    from roadworthy.monitors import Learned

    with tempfile.TemporaryDirectory(prefix="roadworthy-selftest-") as folder:
        opened = _OPENED[name](Path(folder), monitor)
        fitted = opened.build(toy_model())
        return {"scores": fitted.scores(_rows(fitted, toy_model()), Learned())}


def _callable(folder: Path, monitor: Any) -> Any:
    from roadworthy.monitors import MonitorOpening, open_monitor

    (folder / "selftest_brightness.py").write_text(CODE, "utf-8")
    entry = {"monitor": monitor.name, "function": "selftest_brightness.py:score"}
    return open_monitor(entry, MonitorOpening(folder, trust=True))


def _onnx(folder: Path, monitor: Any) -> Any:
    from onnx import TensorProto, helper, save

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 8, 8])
    mean = helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["batch"])
    node = helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0)
    graph = helper.make_graph([node], "brightness", [image], [mean])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    return monitor(path=str(folder / "m.onnx"), range="0-1")


def _stored(folder: Path, monitor: Any) -> Any:
    rows: list[tuple[Any, ...]] = [("stimulus", "id", "score")]
    for part in shown():
        brightness = part.batch(slice(None)).images.mean(axis=(1, 2, 3)) / 255.0
        rows += [("", image, repr(float(value))) for image, value in zip(part.ids, brightness, strict=True)]
    with (folder / "scores.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return monitor(scores=str(folder / "scores.csv"))


_OPENED: dict[str, Callable[[Path, Any], Any]] = {"callable": _callable, "onnx_monitor": _onnx, "stored": _stored}


def _of_pytorch_ood(monitor: Any) -> Values:
    """Its detector MaxSoftmax is the monitor `msp`."""
    from roadworthy.monitors import Msp

    train = data()[0]
    both = [made.build(torch_model(), train) for made in (monitor(detector="MaxSoftmax"), Msp())]
    theirs, ours = (_rows(fitted, torch_model())[:, 0] for fitted in both)
    return {"MaxSoftmax is msp": bool(np.allclose(theirs, ours, atol=1e-5))}
