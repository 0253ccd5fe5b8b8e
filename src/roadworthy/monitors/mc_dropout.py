"""The MC-Dropout monitor: how undecided the mean of several stochastic passes is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Model
from roadworthy.core.validation import MOST_PASSES
from roadworthy.models import TorchModel
from roadworthy.models.head import network_here
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned
from roadworthy.uncertainty import McDropout, predictive_entropy


@registered(MONITORS, "mc_dropout")
class McDropoutEntropy(Monitor):
    """Minus the entropy of the mean of several passes: sum_k m_k log m_k, m the mean of the first `passes`.

    The passes are the samples of the model, an MC-Dropout model or an ensemble. For a torch model with dropout
    layers so many sub-networks drawn with `seed` answer; the model is copied at its first use, and again after `build`.
    """

    passes: int = 7
    seed: int = 0

    needs: ClassVar[frozenset[str]] = frozenset({"samples"})
    differs_from_paper: ClassVar[str] = (
        "the score and the 7 passes are those of OD-test (Shafaei et al. 2018); a pass is one sub-network for all "
        "images, where the paper draws new masks for each; dropout is where the network has it, in the paper before "
        "every weight layer"
    )

    def __post_init__(self) -> None:
        require_count(self, "passes", most=MOST_PASSES)

    def check(self, model: Model) -> None:
        """Refuse a model that has neither samples nor dropout layers."""
        if not _holds_dropout(network_here(model)):
            super().check(model)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the entropy of the mean, (N,)."""
        if "samples" in signals.model.capabilities:
            samples = signals.prediction.samples
        else:
            network = network_here(signals.model)
            sampler = state.cached("sampler", lambda: self._sampler(network, signals.images.shape[1:3]), of=network)
            samples = sampler.answer(signals.batch, len(signals)).samples
        pass_count = 0 if samples is None else len(samples)
        if samples is None or pass_count < self.passes:
            raise InputError(
                f"monitor {self.name} needs {self.passes} stochastic passes but model {signals.model.name} answers "
                f"{pass_count}: give an MC-Dropout model or an ensemble of at least {self.passes}"
            )
        return -predictive_entropy(samples[: self.passes])

    def _sampler(self, model: Model, size: tuple[int, ...]) -> McDropout:
        assert isinstance(model, TorchModel)
        preprocess = model.preprocess
        if preprocess.size is None:
            preprocess = replace(preprocess, size=(size[0], size[1]))
        settings: dict[str, Any] = {"preprocess": preprocess, "outputs": model.outputs, "name": model.name}
        return McDropout(model.module, passes=self.passes, seed=self.seed, **settings)


def _holds_dropout(model: Model) -> bool:
    """True for a torch model with a dropout layer of a probability above 0."""
    if not isinstance(model, TorchModel):
        return False
    return any("Dropout" in type(part).__name__ and getattr(part, "p", 0) > 0 for part in model.module.modules())
