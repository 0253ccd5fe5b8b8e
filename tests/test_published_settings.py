"""Settings that pages and docstrings call published, each beside the value and the place in its document.

OD-test: Shafaei, Schmidt, Little 2018, and its published code. Thesis: Heindrich 2020. AD-Cifar-7: Diet et al. 2023.
SAS: Ferreira et al. 2020, deliverable D1.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from roadworthy.models.autoencoders import bottleneck_of, layer_plan
from roadworthy.models.perception.task_network import TaskSettings, default_dropout, default_learning_rate
from roadworthy.models.reference import ReferenceModel
from roadworthy.monitors import make_monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.odin import Odin
from roadworthy.outliers.gan import CONFIGURATIONS, PRESETS
from roadworthy.uncertainty.perception import MEMBERS, PASSES

STUDIES = Path(__file__).parents[1] / "studies"
BIG = ("efficientnet_b0", "resnet50", "convnext_tiny")
TABLE_4 = {
    "last_layer": (0.1, 0.2, 0.05),
    "after_backbone": (0.3, 0.35, 0.15),
    "head": (0.05, 0.1, 0.05),
    "full": (0.05, 0.05, 0.05),
}
"""Dropout rates of AD-Cifar-7 for classification, in the order of `BIG`."""


def of_monitor(name: str, setting: str) -> Any:
    return getattr(make_monitor(name), setting)


def of_network(name: str, *settings: str) -> tuple[Any, ...]:
    return tuple(getattr(ReferenceModel(name), setting) for setting in settings)


PUBLISHED = [
    (of_monitor("mc_dropout", "passes"), 7, "OD-test, A.2: 'average predictions of 7 evaluations per input'"),
    (of_monitor("deep_ensemble", "members"), 5, "OD-test, A.2: 'average over the predictions of 5 networks'"),
    (of_monitor("openmax", "tail"), 20, "OD-test, code: methods/openmax.py"),
    (of_monitor("openmax", "alpha"), 10, "OD-test, code: methods/openmax.py"),
    (Odin().temperatures, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000), "OD-test, code: methods/odin.py"),
    ((len(Odin().epsilons), Odin().epsilons[0], Odin().epsilons[-1]), (21, 0, 0.004), "OD-test, code: methods/odin.py"),
    (of_monitor("pixelcnn", "blocks"), 5, "OD-test, code: nr_resnet=5"),
    (layer_plan((28, 28), 64, 256)[0], [64, 128, 128, *[256] * 5], "OD-test, code: max_channels=256, depth=8"),
    (
        layer_plan((32, 32), 64, 512)[0],
        [64, 128, 128, 256, 256, *[512] * 5],
        "OD-test, code: max_channels=512, depth=10",
    ),
    ([bottleneck_of((side, side)) for side in (28, 32, 64, 96)], [96, 256, 512, 512], "OD-test, code: n_hidden"),
    (of_network("baseline", "width", "epochs", "batch"), (32, 4, 128), "Thesis, 3.2: '32 filters each', '4 epochs'"),
    (of_network("mc_dropout", "epochs", "dropout"), (8, 0.6), "Thesis, 3.2: 'dropout layer (p=0.6)', '8 epochs'"),
    (PRESETS["thesis"].width, 64, "Thesis, 3.2: '[64, 128, 256, 512, 1] for the discriminator'"),
    (PRESETS["thesis"].batch, 96, "Thesis, 3.2: 'a batch size of 96'"),
    (PRESETS["thesis"].learning_rate, 0.0002, "Thesis, 3.2: 'a learning rate of 0.0002'"),
    (PRESETS["thesis"].epochs, 30, "Thesis, figure 7: 'over 30 epochs'"),
    ({CONFIGURATIONS[name].at for name in ("lee_gan", "lee_wgan")}, {0.3}, "Thesis, 3.1.2: '30% accuracy'"),
    (CONFIGURATIONS["sricharan_gan_005"].at, 0.005, "Thesis, 3.1.2: 'set to 0.005'"),
    (CONFIGURATIONS["sricharan_wgan_002"].at, 0.002, "Thesis, 3.1.2: 'a classifier loss of 0.002'"),
    (CONFIGURATIONS["sricharan_wgan_2e"].at, 2, "Thesis, 3.1.2: 'a set training period of two epochs'"),
    (
        {placement: tuple(default_dropout(one, "classes", placement) for one in BIG) for placement in TABLE_4},
        TABLE_4,
        "AD-Cifar-7, table 4",
    ),
    ({default_dropout(one, "boxes", "full") for one in BIG}, {0.05}, "AD-Cifar-7, 5.3: 'consistent 0.05'"),
    ({default_learning_rate(one, "classes", "head") for one in BIG}, {0.0001}, "AD-Cifar-7, 5.3: '0.0001 for all'"),
    (
        [[default_learning_rate(one, "boxes", placement) for one in BIG] for placement in ("none", "full")],
        [[0.0001, 0.0001, 0.001], [0.001, 0.0001, 0.001]],
        "AD-Cifar-7, 5.3: '0.001, for the dropout variants of EfficientNet-B0 and all variants of ConvNeXt-Tiny'",
    ),
    ((MEMBERS, PASSES), (5, 20), "AD-Cifar-7, 5: 'M = 5 for the Ensemble', 'T = 20 for all MC-Dropout variants'"),
    (TaskSettings("resnet50").complete().hidden, 128, "AD-Cifar-7, 5.2: 'the best number of neurons n is 128'"),
    (of_monitor("boxes", "tau"), 0.0001, "SAS, table 1"),
]


@pytest.mark.parametrize(("ours", "published", "where"), PUBLISHED, ids=[where for *_, where in PUBLISHED])
def test_what_is_called_published_has_the_published_value(ours: Any, published: Any, where: str) -> None:
    assert ours == published


def test_what_is_not_as_published_says_so() -> None:
    """Sizes of OD-test's networks that ours do not have by default: whoever changes them changes these words."""
    assert (of_monitor("ae_threshold", "most_width"), of_monitor("pixelcnn", "width")) == (256, None)
    for name in ("ae_threshold", "mnn_svm", "bnn_svm", "vnn_svm"):
        assert "the published code has 512 from 32 pixels on" in MONITORS.get(name).differs_from_paper
    assert "OD-test (Shafaei et al. 2018) has for all sets of 32 pixels" in MONITORS.get("pixelcnn").differs_from_paper
    assert {one.surrogate for one in CONFIGURATIONS.values()} == {"real"}
    thesis = yaml.safe_load((STUDIES / "heindrich.yaml").read_text())["protocols"]["ood"]["gans"]
    lee = [one["surrogate"] for one in thesis["configurations"] if one["name"].startswith("lee")]
    assert (lee, thesis["count"]) == (["joint", "joint"], 10), "the thesis's own: 3.2 and 4.2.3"
    for name, words in {"od-test": "4096", "ad-cifar-7": "imgaug"}.items():
        head = (STUDIES / f"{name}.yaml").read_text().partition("\nname:")[0]
        assert "Not as published: " in head
        assert words in head.partition("Not as published: ")[2]
