"""The MC-Dropout monitor: how undecided the mean of several stochastic passes is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from roadworthy.core.errors import InputError
from roadworthy.core.protocols import Model
from roadworthy.core.types import Batch
from roadworthy.core.validation import MOST_PASSES
from roadworthy.models import TorchModel
from roadworthy.models.memory import network_of
from roadworthy.monitors.base import MONITORS, Floats, Monitor, require_count
from roadworthy.uncertainty import McDropout, predictive_entropy


@MONITORS.register("mc_dropout")
@dataclass(frozen=True, kw_only=True)
class McDropoutEntropy(Monitor):
    """Minus the entropy of the mean of several passes: sum_k m_k log m_k, m the mean of the first `passes`.

    The passes are the samples of the model, an MC-Dropout model or an ensemble. A torch model that holds dropout layers
    is answered by so many sub-networks drawn with `seed`; it is copied when first used, and anew after `build`.
    """

    passes: int = 7
    seed: int = 0

    name: ClassVar[str] = "mc_dropout"
    needs: ClassVar[frozenset[str]] = frozenset({"samples"})
    differs_from_paper: ClassVar[str] = (
        "the score and the 7 passes are those of OD-test (Shafaei et al. 2018); a pass is one sub-network for all "
        "images, where the paper draws new masks for each; dropout is where the network has it, in the paper before "
        "every weight layer"
    )

    def __post_init__(self) -> None:
        require_count(self, "passes", most=MOST_PASSES)

    def check(self, model: Model) -> None:
        """Refuse a model without samples that holds no dropout either."""
        if not _holds_dropout(network_of(model)):
            super().check(model)

    def read(self, model: Model, batch: Batch) -> Floats:
        """(N,)."""
        source = model if "samples" in model.capabilities else self._sampler(network_of(model), batch)
        samples = source.answer(batch, len(batch)).samples
        held = 0 if samples is None else len(samples)
        if samples is None or held < self.passes:
            raise InputError(
                f"monitor {self.name} needs {self.passes} stochastic passes but model {model.name} answers {held}: "
                f"give an MC-Dropout model or an ensemble of at least {self.passes}"
            )
        return -predictive_entropy(samples[: self.passes])

    def _sampler(self, model: Model, batch: Batch) -> McDropout:
        assert isinstance(model, TorchModel)
        known, sampler = self.fitted.cache.get("sampler", (None, None))
        if known is not model:
            form = model.preprocess
            sampler = McDropout(
                model.module,
                passes=self.passes,
                seed=self.seed,
                size=model.input_size or batch.images.shape[1:3],
                name=model.name,
                range=form.range,
                layout=form.layout,
                colour=form.colour,
                channels=form.channels,
                outputs=model.outputs,
            )
            self.fitted.cache["sampler"] = (model, sampler)
        assert isinstance(sampler, McDropout)
        return sampler


def _holds_dropout(model: Model) -> bool:
    """True for a torch model with a dropout layer of a probability above 0."""
    if not isinstance(model, TorchModel):
        return False
    return any("Dropout" in type(part).__name__ and getattr(part, "p", 0) > 0 for part in model.module.modules())
