"""Deep ensembles: several models that answer as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Buildable, Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.core.validation import check_whole
from roadworthy.models.classes import align
from roadworthy.models.trained import TrainedNetwork
from roadworthy.uncertainty.measures import mixture, tasks_of

MOST_MEMBERS = 1000


class Ensemble(Model):
    """The mean of the members' probabilities: p_nk = 1/S sum_s p_snk.

    `samples` (S, N, K) are the members' answers, one each (of a member with samples of its own, their mean);
    `certainty` is the largest mean probability. A member whose classes are in another order is put in the first one's.
    Of localizers, the box is the mean of the members' and `box_variance` their variance per coordinate, divided by S
    and not S - 1, plus the mean of the variance that they state themselves. All members must answer the same columns.

    >>> import numpy as np
    >>> from roadworthy.models import load_model
    >>> ramp = lambda images: np.tile([0.2, 0.8], (len(images), 1)).astype(np.float32)
    >>> member = load_model(ramp, num_classes=2, version="1", outputs="probabilities", name="ramp")
    >>> Ensemble([member, member]).capabilities == {"probabilities", "samples", "certainty"}
    True
    """

    uncertainty = "ensemble"

    def __init__(self, members: Sequence[Model], *, name: str = "ensemble") -> None:
        if not members:
            raise InputError(f"ensemble {name} has no members: give at least one model")
        self.name, self.members, self._given = name, tuple(members), tuple(members)
        families = {member.family for member in members}
        self.family = families.pop() if len(families) == 1 else ""
        self.capabilities = self._agree_on_columns()
        self.learns_from = frozenset[str]().union(*(member.learns_from for member in members))
        self.concurrent = all(member.concurrent for member in members)
        if not self.learns_from:
            self._agree_on_classes()

    def _agree_on_columns(self) -> frozenset[str]:
        """What it answers; an error where one member answers classes, boxes or their variance and another does not."""
        first = self.members[0]
        for column in ("probabilities", "boxes", "box_variance"):
            for member in self.members:
                if (column in member.capabilities) != (column in first.capabilities):
                    has, lacks = (member, first) if column in member.capabilities else (first, member)
                    raise InputError(
                        f"ensemble {self.name}: {has.name} answers {column} and {lacks.name} does not: give members "
                        "that answer the same"
                    )
        of_classes = {"probabilities", "samples", "certainty"} if "probabilities" in first.capabilities else set()
        if of_classes and all("logits" in member.capabilities for member in self.members):
            of_classes |= {"log_odds"}
        return frozenset(of_classes | ({"boxes", "box_variance"} if "boxes" in first.capabilities else set()))

    def _agree_on_classes(self) -> None:
        members, first, name = self.members, self.members[0], self.name
        sizes = [member.input_size for member in members]
        self.input_size = sizes[0] if len(set(sizes)) == 1 else None
        unbound = list(dict.fromkeys(member.own_labels for member in members if member.own_labels is not None))
        if len(unbound) > 1 or (unbound and any(member.own_labels is None for member in members)):
            self.own_labels = tuple(dict.fromkeys(label for labels in unbound for label in labels))
            return  # what the columns have in common is known once the classes of the data are: see `for_classes`
        self.own_labels = first.own_labels
        named = next((member.class_names for member in members if member.class_names is not None), None)
        for member in members:
            if member.num_classes != first.num_classes:
                raise InputError(
                    f"ensemble {name}: {member.name} answers {member.num_classes} classes and {first.name} "
                    f"{first.num_classes}; all members must have the same"
                )
        self.num_classes, self.class_names = first.num_classes, named
        if named is not None:
            self.members = tuple(align(member, named) for member in members)

    def with_data(self, data: Mapping[str, Dataset]) -> Ensemble:
        """The ensemble of members that have their data."""
        return Ensemble([member.with_data(data) for member in self.members], name=self.name)

    def for_classes(self, class_names: Sequence[str]) -> Ensemble:
        """The ensemble of members as they answer about these classes, whichever of them each was trained on."""
        bound = [member.for_classes(class_names) for member in self._given]
        same = all(now is then for now, then in zip(bound, self._given, strict=True))
        return self if same else Ensemble(bound, name=self.name)

    def for_repeat(self, repeat: int) -> Ensemble:
        """Those who answer in this repeat, as one: the ensemble itself unless a member is trained anew."""
        members = [member.for_repeat(repeat) for member in self.members]
        same = all(now is then for now, then in zip(members, self.members, strict=True))
        return self if same else Ensemble(members, name=self.name)

    def wrapped(self) -> tuple[Model, ...]:
        """The members."""
        return self.members

    def requires(self) -> tuple[Buildable, ...]:
        """What the members are made of."""
        return tuple(part for member in self.members for part in member.requires())

    def fingerprint(self) -> str:
        """Hash of the members, in their order, and of what is made of their boxes."""
        boxes = {"boxes": "mean and variance"} if "boxes" in self.capabilities else {}
        return digest({"kind": "ensemble", "members": [member.fingerprint() for member in self.members], **boxes})

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What the first member says, with the number of members and the weights of all; None where one is unknown."""
        own_facts = [member.facts() for member in self.members]
        facts = {}
        for task in tasks_of(self):
            known = [own.get(task, {}).get("weights") for own in own_facts]
            weights = [count for count in known if count is not None]
            total = {"weights": sum(weights) if len(weights) == len(known) else None}
            facts[task] = {**own_facts[0].get(task, {}), "members": len(self.members), **total}
        return facts

    def predict(self, batch: Batch) -> Prediction:
        """The members' answers and their mean; of boxes their mean and variance."""
        if "probabilities" in self.capabilities and not self.num_classes:
            raise InputError(f"ensemble {self.name}: its members know different classes: say with `align` about which")
        if not len(batch):
            return Prediction.concatenate([], self.num_classes)
        return mixture([member.answer(batch, len(batch)) for member in self.members])


class TrainedEnsemble(Ensemble):
    """An ensemble of one network trained `count` times, each from a seed of its own; the first is the network itself.

    Where the network is to be trained anew for every repeat, no repeat shares a member with another.

    >>> from roadworthy.models.reference import ReferenceModel
    >>> network = ReferenceModel("baseline")
    >>> [member is network for member in TrainedEnsemble(network, 3).members]
    [True, False, False]
    """

    def __init__(self, network: TrainedNetwork, count: int, *, name: str = "ensemble") -> None:
        if count < 2:
            raise InputError(f"ensemble {name} needs at least 2 members, not {count}")
        check_whole(f"ensemble {name}: members", count, 2, MOST_MEMBERS)
        self.network, self.count = network, count
        super().__init__([network.member(number) for number in range(count)], name=name)

    def with_data(self, data: Mapping[str, Dataset]) -> Self:
        """The ensemble on the training data of a study."""
        return type(self)(self.network.with_data(data), self.count, name=self.name)

    def for_repeat(self, repeat: int) -> Self:
        """The members of a repeat where the network is trained anew for each, else the ensemble itself."""
        if not self.network.retrain or not repeat:
            return self
        return type(self)(self.network.for_repeat(repeat), self.count, name=self.name)
