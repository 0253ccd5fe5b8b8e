"""Deep ensembles: several models that answer as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.protocols import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.classes import align
from roadworthy.uncertainty.measures import mean_prediction


class Ensemble(Model):
    """The mean of the members' probabilities: p_nk = 1/S sum_s p_snk.

    `samples` (S, N, K) are the members' answers, one each (of a member with samples of its own, their mean);
    `certainty` is the largest mean probability. A member whose classes are in another order is put in the first one's.

    >>> from roadworthy.models import load_model
    >>> ramp = lambda images: np.tile([0.2, 0.8], (len(images), 1)).astype(np.float32)
    >>> member = load_model(ramp, num_classes=2, version="1", outputs="probabilities", name="ramp")
    >>> Ensemble([member, member]).capabilities == {"probabilities", "samples", "certainty"}
    True
    """

    capabilities = frozenset({"probabilities", "samples", "certainty"})

    def __init__(self, members: Sequence[Model], *, name: str = "ensemble") -> None:
        if not members:
            raise InputError(f"ensemble {name} has no members: give at least one model")
        first = members[0]
        named = next((member.class_names for member in members if member.class_names is not None), None)
        for member in members:
            if member.num_classes != first.num_classes:
                raise InputError(
                    f"ensemble {name}: {member.name} answers {member.num_classes} classes and {first.name} "
                    f"{first.num_classes}; all members must have the same"
                )
        self.name, self.num_classes, self.class_names = name, first.num_classes, named
        self.members = tuple(member if named is None else align(member, named) for member in members)
        sizes = [member.input_size for member in members]
        self.input_size = sizes[0] if len(set(sizes)) == 1 else None
        self.concurrent = all(member.concurrent for member in members)

    def fingerprint(self) -> str:
        """Hash of the members, in their order."""
        return digest({"kind": "ensemble", "members": [member.fingerprint() for member in self.members]})

    def predict(self, batch: Batch) -> Prediction:
        """The members' answers and their mean."""
        if not len(batch):
            return Prediction.concatenate([], self.num_classes)
        samples = np.stack([member.answer(batch, len(batch)).probabilities for member in self.members])
        mean = mean_prediction(samples)
        return Prediction(probabilities=mean, samples=samples, certainty=mean.max(axis=1))
