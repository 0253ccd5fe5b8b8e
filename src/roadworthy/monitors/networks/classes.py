"""Classifiers that a monitor trains: with k-way logistic loss, with adversarial copies, and of two sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset, Model, leaves
from roadworthy.data import Subset
from roadworthy.data.subset import leading_rows
from roadworthy.models.identity import code_in_recipe
from roadworthy.models.reference import ARCHITECTURES, ReferenceModel
from roadworthy.models.task_training import ClassTask, LearningPart, Task, class_part
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.training import HELD_OUT
from roadworthy.monitors.networks.base import OwnNetwork

if TYPE_CHECKING:
    import torch

DEFAULT_ARCHITECTURE = "vgg"
"""What is trained beside a model that is no reference network, unless a setting says otherwise."""


def reference_of(model: Model) -> ReferenceModel | None:
    """The reference network behind a model, whatever it is wrapped in; None where it is none."""
    inner = leaves(model)[0]
    return inner if isinstance(inner, ReferenceModel) else None


def architecture_settings(owner: str, model: Model, train: Dataset, given: Mapping[str, Any]) -> dict[str, Any]:
    """What `make_classifier` makes: the architecture of the model, or the one given, for the training data.

    given   architecture and width, each None where it is that of the model
    """
    reference = reference_of(model)
    name = given["architecture"] or (reference.architecture if reference else DEFAULT_ARCHITECTURE)
    if name not in ARCHITECTURES:
        raise UnknownName(f"architecture of {owner}", name, ARCHITECTURES)
    default = ARCHITECTURES.get(name)
    like = reference if reference is not None and reference.architecture == name else None
    width = given["width"] or (like.width if like else default.width)
    if "width" not in default.settings and width != default.width:
        raise InputError(f"{owner}: a {name} has its own width: leave it out")
    known = {"width": width, "hidden": like.hidden if like else 128}
    known["dropout"] = like.dropout if like else default.dropout
    form = {"classes": len(train.class_names), "size": list(train.size), "channels": train.channels}
    form |= code_in_recipe(default.make)
    return {"architecture": name, **{key: known[key] for key in sorted(default.settings)}, **form}


def make_classifier(settings: Mapping[str, Any]) -> torch.nn.Module:
    """The network of such settings: images (N, C, H, W) to logits (N, K)."""
    default = ARCHITECTURES.get(settings["architecture"])
    own = {name: settings[name] for name in default.settings}
    return default.make(settings["classes"], tuple(settings["size"]), channels=settings["channels"], **own)


class LogisticTask(ClassTask):
    """k-way logistic loss: binary cross-entropy of every class against the others; judged by the largest logit."""

    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean over images and classes."""
        return logistic_loss(network(images), targets)

    def judge(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """1 where the largest logit is that of the true class, else 0; and the mean loss."""
        logits = network(images)
        return (logits.argmax(1) == targets).float(), logistic_loss(logits, targets)


def logistic_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-mean_{n,k} [y log sigmoid(z) + (1 - y) log(1 - sigmoid(z))], y_nk = 1 where k is the label of n.

    >>> torch = import_torch()
    >>> round(float(logistic_loss(torch.zeros(1, 4), torch.tensor([2]))), 4)
    0.6931
    """
    functional = import_torch().nn.functional
    targets = functional.one_hot(labels, logits.shape[1]).float()
    loss: torch.Tensor = functional.binary_cross_entropy_with_logits(logits, targets)
    return loss


class AdversarialTask(ClassTask):
    """Cross-entropy of images and of adversarial copies of them: l(x) + l(x + epsilon sign(d l(x) / dx)).

    The copies are made by the fast gradient sign method from the network as it is (Lakshminarayanan et al. 2017);
    pixels x are from 0 to 1, and a copy is not clipped.
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum of both mean losses."""
        plain, copies = adversarial_copies(network, images, targets, self.epsilon)
        entropy: torch.Tensor = import_torch().nn.functional.cross_entropy(network(copies), targets)
        return plain + entropy


def adversarial_copies(
    network: Any, images: torch.Tensor, labels: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean cross-entropy of images (N, C, H, W), and x + epsilon sign(d l / dx), detached."""
    torch = import_torch()
    leaf = images.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(network(leaf), labels)
    (gradient,) = torch.autograd.grad(loss, leaf, retain_graph=True)
    return loss, (images + epsilon * gradient.sign()).detach()


class ClassifierNetwork(OwnNetwork):
    """A classifier of the training data, with the loss `logistic`, or `adversarial` with an epsilon."""

    kind = "classifier"
    objective: ClassVar[Mapping[str, str]] = {
        "logistic": "k-way logistic loss",
        "adversarial": "cross-entropy, also of adversarial copies",
    }

    def make(self) -> torch.nn.Module:
        """The network before training."""
        return make_classifier(self.settings)

    def task(self, parts: tuple[LearningPart, LearningPart]) -> Task:
        """Classification, with the loss of the settings."""
        return LogisticTask() if self.settings["loss"] == "logistic" else AdversarialTask(self.settings["epsilon"])


def make_two_sided(settings: Mapping[str, Any]) -> torch.nn.Module:
    """A classifier with one more linear layer that turns its answer into one number: (N, 1)."""
    nn = import_torch().nn
    network: torch.nn.Module = nn.Sequential(make_classifier(settings), nn.Linear(settings["classes"], 1))
    return network


class TwoSidedTask(Task):
    """Binary cross-entropy of images inside (1) against outliers (0); judged by the sign of the answer."""

    figure = "clean_accuracy"

    def targets(self, part: LearningPart) -> torch.Tensor:
        """The sides (N,)."""
        sides: torch.Tensor = import_torch().from_numpy(part.labels.astype(np.float32))
        return sides

    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss."""
        entropy = import_torch().nn.functional.binary_cross_entropy_with_logits
        loss: torch.Tensor = entropy(network(images)[:, 0], targets)
        return loss

    def judge(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """1 where the side is right, else 0; and the mean loss."""
        answers = network(images)[:, 0]
        entropy = import_torch().nn.functional.binary_cross_entropy_with_logits
        return ((answers > 0) == (targets > 0.5)).float(), entropy(answers, targets)


class TwoSidedNetwork(OwnNetwork):
    """A network that tells training images from validation outliers, as many of the one as of the other.

    Of the outliers the first four fifths are learned from and the rest chooses the epoch (`leading_rows`), so that they
    can also be judged by images that no weight was learned from; of the training images, split at random, as many are
    taken, spread evenly.
    """

    kind = "two_sided"
    objective: ClassVar[Mapping[str, str]] = {"": "binary cross-entropy, inside against D_v"}

    def make(self) -> torch.nn.Module:
        """The network before training."""
        return make_two_sided(self.settings)

    def task(self, parts: tuple[LearningPart, LearningPart]) -> Task:
        """Inside or outside."""
        return TwoSidedTask()

    @property
    def images(self) -> int:
        """Both sides, as many as the fewer are."""
        assert self.outliers is not None
        return 2 * min(len(self.train), len(self.outliers))

    def parts(self) -> tuple[LearningPart, LearningPart]:
        """Both sides of the images to learn from, then of those that choose the epoch."""
        assert self.outliers is not None
        inside = super().parts()
        leading = leading_rows(self.outliers.groups, 1 - HELD_OUT)
        if leading.all():
            raise InputError(f"{self.outliers.name} holds too few outliers to choose an epoch by: give more")
        outside = [class_part(Subset(self.outliers, np.flatnonzero(rows).tolist())) for rows in (leading, ~leading)]
        first, second = (_both_sides(*sides) for sides in zip(inside, outside, strict=True))
        return first, second


def _both_sides(inside: LearningPart, outside: LearningPart) -> LearningPart:
    """As many images of both sides, spread evenly over each, with 1 as the label of those inside."""
    count = min(len(inside), len(outside))
    chosen = [np.linspace(0, len(side) - 1, count).round().astype(np.int64) for side in (inside, outside)]

    def read(rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        is_inside = rows < count
        pictures = (
            (is_inside, inside.read(chosen[0][rows[is_inside]])),
            (~is_inside, outside.read(chosen[1][rows[~is_inside] - count])),
        )
        images = np.empty((len(rows), *pictures[0][1].shape[1:]), np.uint8)
        for at, part in pictures:
            images[at] = part
        return images

    ids = [f"in/{inside.ids[row]}" for row in chosen[0]] + [f"out/{outside.ids[row]}" for row in chosen[1]]
    return LearningPart(tuple(ids), np.repeat(np.array([1, 0], np.int64), count), read)
