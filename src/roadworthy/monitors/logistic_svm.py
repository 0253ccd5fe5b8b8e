"""LogisticSVM: ScoreSVM on a network of its own that was trained with k-way logistic loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import registered
from roadworthy.core.roles import Dataset, Model
from roadworthy.models.signals import Signals
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Learned, Rep
from roadworthy.monitors.networks.base import OwnNetwork
from roadworthy.monitors.networks.classes import ClassifierNetwork
from roadworthy.monitors.own_networks import ClassifierMonitor
from roadworthy.monitors.svm import SOLVED_EXACTLY, SvmMonitor

ROLE = "classifier"


@registered(MONITORS, "logistic_svm")
class LogisticSvm(ClassifierMonitor, SvmMonitor):
    """LogisticSVM: a linear SVM on the logits of a network trained with k-way logistic loss on the training images.

    Each class is told from all others, so the network can deny them all. Without outliers the score is the largest
    logit.
    """

    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = f"{SOLVED_EXACTLY} the largest logit"

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The classifier."""
        settings = {"loss": "logistic", **self.form(model, train)}
        return {ROLE: ClassifierNetwork(settings, self.budget_like(model), train, seed=self.seed)}

    def read(self, signals: Signals, state: Learned) -> NDArray[np.float32]:
        """Logits (N, K)."""
        return self.answers(signals, state, [ROLE])[0]

    def unsupervised(self, rows: Rep) -> NDArray[Any]:
        """The largest logit."""
        return np.asarray(rows.max(axis=1))
