"""DeepEnsemble: how undecided the mean of several networks is that were trained apart, with adversarial copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Dataset, Model
from roadworthy.models import softmax
from roadworthy.models.signals import Signals
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned
from roadworthy.monitors.networks.base import OwnNetwork
from roadworthy.monitors.networks.classes import ClassifierNetwork
from roadworthy.monitors.own_networks import ClassifierMonitor
from roadworthy.uncertainty import predictive_entropy

MOST_MEMBERS = 100


@registered(MONITORS, "deep_ensemble")
class DeepEnsemble(ClassifierMonitor):
    """DeepEnsemble: sum_k m_k log m_k, minus the entropy of the mean answer m of networks that were trained apart.

    Each member is trained with l(x) + l(x + epsilon sign(d l(x) / dx)), l the cross-entropy and
    x pixels from 0 to 1 (Lakshminarayanan et al. 2017).

    members   networks, each trained from a seed of its own;  epsilon: the size of the adversarial step
    """

    members: int = 5
    epsilon: float = 0.01

    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "the score is the entropy of the mean answer, as in OD-test (Shafaei et al. 2018); members are those of the "
        "architecture that is watched, kept at their best epoch on held-out images"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "members", most=MOST_MEMBERS)
        if not 0 <= self.epsilon < np.inf:
            raise InputError(f"monitor {self.name}: epsilon is a number of at least 0, not {self.epsilon!r}")

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The members."""
        settings = {"loss": "adversarial", "epsilon": self.epsilon, **self.form(model, train)}
        budget = self.budget_like(model)
        return {
            role: ClassifierNetwork(settings, budget, train, seed=self.seed, index=number)
            for number, role in enumerate(self._roles)
        }

    @property
    def _roles(self) -> list[str]:
        return [f"member {number}" for number in range(self.members)]

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the entropy of the mean, (N,)."""
        samples = np.stack([softmax(logits) for logits in self.answers(signals, state, self._roles)])
        return -predictive_entropy(samples)
