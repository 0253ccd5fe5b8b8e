"""Perception networks of a study, with their uncertainty: `{perception: small_convnext, uncertainty: head}`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Model
from roadworthy.core.validation import MOST_PASSES, check_whole
from roadworthy.models.joint import JointModel
from roadworthy.models.perception.placements import PLACEMENTS
from roadworthy.models.perception.search import SearchSettings, check_ranges
from roadworthy.models.perception.task_network import BOX_FORM, TASKS, TaskNetwork, TaskSettings, searched_values
from roadworthy.models.preprocess import parse_choice
from roadworthy.uncertainty.ensemble import TrainedEnsemble
from roadworthy.uncertainty.mc_dropout import McDropout

ENSEMBLE = "ensemble"
METHODS = (*PLACEMENTS, ENSEMBLE)
MEMBERS = 5
PASSES = 20


class DropoutNetwork(TaskNetwork):
    """A perception network that answers by the mean of `passes` with its dropout active; see `McDropout`.

    The number of passes is no part of the recipe: more passes need no new training.
    """

    def __init__(self, settings: TaskSettings, *, passes: int = PASSES, **common: Any) -> None:
        check_whole("perception network: passes", passes, 1, MOST_PASSES)
        self.passes = passes
        super().__init__(settings, **common)
        self.uncertainty = settings.placement

    def answers(self) -> frozenset[str]:
        """Classes with their samples, or boxes with their variance."""
        of_classes = {"probabilities", "log_odds", "samples", "certainty"}
        return frozenset(of_classes if self.settings.task == "classes" else {"boxes", "box_variance"})

    def fingerprint(self) -> str:
        """Hash of the recipe and the number of passes."""
        return digest({"kind": "task_network", "recipe": self.recipe.hash, "passes": self.passes})

    def open(self, home: Path) -> Model:
        """The trained network with its dropout active."""
        form: dict[str, Any] = {"boxes": BOX_FORM}
        if self.settings.task == "classes":
            form = {"outputs": "logits", "classes": self.class_names}
        return McDropout(
            self.trained(home),
            passes=self.passes,
            seed=self.seed,
            size=self.data.size,
            channels=self.data.channels,
            range="0-1",
            name=self.name,
            uncertainty=self.uncertainty,
            family=self.family,
            **form,
        )

    def facts(self) -> dict[str, dict[str, Any]]:
        """What a report says of it, by task."""
        return {task: {**known, "passes": self.passes} for task, known in super().facts().items()}


class TaskEnsemble(TrainedEnsemble):
    """One perception network without dropout, trained several times, each from a seed of its own.

    The first member is the plain network of the same settings: it is trained once for both.
    """

    network: TaskNetwork

    def facts(self) -> dict[str, dict[str, Any]]:
        """What a report says of it, by task; the weights are those of all members."""
        return {
            task: {
                **known,
                "members": self.count,
                "weights": None if known["weights"] is None else self.count * known["weights"],
            }
            for task, known in self.network.facts().items()
        }


def load_perception(
    spec: str,
    *,
    task: str = "both",
    uncertainty: str = "none",
    members: int | None = None,
    passes: int | None = None,
    dropout: float | None = None,
    boxes: str | None = None,
    loss: str | None = None,
    learning_rate: float | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    patience: int | None = None,
    schedule: str | None = None,
    hidden: int | None = None,
    width: int | None = None,
    augment: bool = True,
    weights: str | None = None,
    seed: int | None = None,
    retrain: bool = False,
    threads: int | None = None,
    floor_accuracy: float | None = None,
    floor_iou: float | None = None,
    search: dict[str, Any] | None = None,
    name: str | None = None,
    base: Path = Path(),
) -> Model:
    """`{perception: small_convnext, task: both, uncertainty: full}`: networks that a study trains, one for each task.

    task         `classes`, `boxes`, or `both`: two networks that answer as one model
    uncertainty  `none`; where dropout stays active (`last_layer`, `after_backbone`, `head`, `full`), with `passes` and
                 `dropout`; or `ensemble`, with `members`
    boxes, loss  how a box is written as four numbers, and what its training minimises
    search       settings of a search for those of learning_rate, dropout and hidden that are not given

    The other settings are those of `TaskSettings` and `TrainedNetwork`.

    >>> model = load_perception("small_resnet", uncertainty="head", passes=5)
    >>> model.family, model.uncertainty, sorted(model.capabilities)
    ('small_resnet', 'head', ['box_variance', 'boxes', 'certainty', 'log_odds', 'probabilities', 'samples'])
    """
    title = name or spec
    parse_choice("task", task, (*TASKS, "both"))
    parse_choice("uncertainty", uncertainty, METHODS)
    tasks = TASKS if task == "both" else (task,)
    _check_used(title, uncertainty, tasks, members=members, passes=passes, dropout=dropout)
    _check_used(title, uncertainty, tasks, boxes=boxes, loss=loss, floor_iou=floor_iou, floor_accuracy=floor_accuracy)
    floors = {"classes": floor_accuracy, "boxes": floor_iou}
    common = {"seed": seed, "retrain": retrain, "threads": threads, "name": title}
    searched = None if search is None else SearchSettings.of(search)
    parts = {}
    for part in tasks:
        settings = TaskSettings(
            spec,
            task=part,
            placement="none" if uncertainty == ENSEMBLE else uncertainty,
            dropout=dropout,
            hidden=hidden,
            width=width,
            boxes=boxes or "corners",
            loss=loss or "mae",
            learning_rate=learning_rate,
            epochs=epochs,
            batch=batch,
            patience=patience,
            schedule=schedule,
            augment=augment,
            weights=None if weights is None else base / weights,
            floor=floors[part],
        )
        parts[part] = _part(settings, uncertainty, members, passes, {**common, "search": searched})
        if searched is not None and search is not None:
            check_ranges(search, searched_values(settings, title), title)
    return parts[tasks[0]] if len(parts) == 1 else JointModel(parts["classes"], parts["boxes"], name=title)


def _part(
    settings: TaskSettings, uncertainty: str, members: int | None, passes: int | None, common: Mapping[str, Any]
) -> Model:
    """The model of one task."""
    if uncertainty == ENSEMBLE:
        count = MEMBERS if members is None else members
        return TaskEnsemble(TaskNetwork(settings, **common), count, name=common["name"])
    if uncertainty == "none":
        return TaskNetwork(settings, **common)
    return DropoutNetwork(settings, passes=PASSES if passes is None else passes, **common)


def _check_used(name: str, uncertainty: str, tasks: tuple[str, ...], **given: Any) -> None:
    """Refuse a setting that nothing would read."""
    drops = uncertainty not in ("none", ENSEMBLE)
    used = {"members": uncertainty == ENSEMBLE, "passes": drops, "dropout": drops}
    used |= dict.fromkeys(("boxes", "loss", "floor_iou"), "boxes" in tasks)
    used |= {"floor_accuracy": "classes" in tasks}
    reasons = {
        "members": "`members` are for `uncertainty: ensemble`",
        "passes": "`passes` are for a placement of dropout in `uncertainty`",
        "dropout": "`dropout` is for a placement of dropout in `uncertainty`",
        "floor_accuracy": "`floor_accuracy` is for networks that answer classes",
    }
    for setting, value in given.items():
        if value is not None and not used[setting]:
            reason = reasons.get(setting, f"`{setting}` is for networks that answer boxes")
            raise InputError(f"perception network {name}: {reason}; leave it out")
