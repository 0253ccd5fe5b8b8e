"""Bayesian search for learning rate, dropout rate and width of the head, on validation data: an artifact of its own."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from roadworthy.core.errors import DamagedFile, InputError, MissingExtra, UnknownName
from roadworthy.core.files import write_json
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Buildable
from roadworthy.core.types import Artifact
from roadworthy.core.validation import MOST_EPOCHS, MOST_WIDTH, check_whole
from roadworthy.models.training import Diverged

JOURNAL = "trials.jsonl"
RESULT = "search.json"
MOST_TRIALS = 10_000
DROPOUT_STEP = 0.05
ALGORITHM = 1
"""Part of every recipe; a change of the search that gives other values raises it."""

RANGES = ("learning_rate", "dropout", "hidden")
"""What can be searched: the settings of a search that are ranges have the same names."""

Values = Mapping[str, float | int]


@dataclass(frozen=True)
class SearchSettings:
    """What is searched, and for how long.

    trials         networks that are trained
    epochs         of each; None: as many as the network itself
    learning_rate  lowest and highest; between them the logarithm is searched
    dropout        lowest and highest, in steps of 0.05; for networks with dropout
    hidden         the widths of the head that are tried

    >>> SearchSettings.of({"trials": 3, "hidden": [64, 128]}).hidden
    (64, 128)
    """

    trials: int = 20
    epochs: int | None = None
    learning_rate: tuple[float, float] = (1e-5, 1e-2)
    dropout: tuple[float, float] = (0.05, 0.35)
    hidden: tuple[int, ...] = (64, 128, 256)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SearchSettings:
        """The settings as a study states them; an unknown one is an error that names the nearest."""
        known = {f.name for f in fields(cls)}
        for name in settings:
            if name not in known:
                raise UnknownName("setting of a search", str(name), known)
        for name in RANGES:
            if name in settings and not _numbers(settings[name]):
                raise InputError(f"a search takes a list of numbers as {name}, not {settings[name]!r}")
        values: dict[str, Any] = dict(settings)
        for name in RANGES:
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)

    def __post_init__(self) -> None:
        check_whole("a search: trials", self.trials, 1, MOST_TRIALS)
        if self.epochs is not None:
            check_whole("a search: epochs", self.epochs, 1, MOST_EPOCHS)
        for name, low, high in (("learning_rate", 0.0, math.inf), ("dropout", 0.0, 1.0)):
            limits = getattr(self, name)
            if len(limits) != 2 or not low < limits[0] <= limits[1] < high:
                raise InputError(f"a search needs a lowest and a highest {name} above 0, not {list(limits)}")
        steps = (self.dropout[1] - self.dropout[0]) / DROPOUT_STEP
        if not math.isclose(steps, round(steps), abs_tol=1e-6):
            lowest, highest = self.dropout
            raise InputError(
                f"a search goes from the lowest to the highest dropout in steps of {DROPOUT_STEP}, and {lowest} to "
                f"{highest} is not a whole number of them: give for example [0.05, 0.35]"
            )
        if not self.hidden or len({*self.hidden}) < len(self.hidden):
            raise InputError(f"a search needs widths of the head in `hidden`, each once, not {[*self.hidden]}")
        for width in self.hidden:
            check_whole("a search: hidden", width, 1, MOST_WIDTH)

    def parameters(self) -> dict[str, Any]:
        """The settings as plain values."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def check_ranges(given: Collection[str], searched: Collection[str], name: str) -> None:
    """Refuse a range among the `given` settings of a search that is of no value `searched` for the network `name`.

    >>> check_ranges({"trials", "hidden"}, {"learning_rate", "hidden"}, "net")
    """
    for value in RANGES:
        if value in given and value not in searched:
            raise InputError(
                f"perception network {name}: its search names a range of {value}, which is not searched, since the "
                "network states a value or has no dropout: leave one of them out"
            )


def _numbers(value: Any) -> bool:
    known = isinstance(value, Sequence) and not isinstance(value, str)
    return known and all(isinstance(number, int | float) and not isinstance(number, bool) for number in value)


class Trainable(Protocol):
    """A network that can be trained with other values, to see how good it becomes."""

    name: str

    def attempt(self, values: Values, epochs: int | None, folder: Path, progress: Callable[[int], None]) -> float:
        """Train with these values in a folder, going on from a checkpoint there; give the validation figure."""

    def trial_recipe(self) -> Artifact:
        """What is trained, without the values that are searched."""

    def trial_work(self, epochs: int | None) -> int:
        """How many images one trial reports to its progress."""


@dataclass
class NetworkSearch(Buildable):
    """A search for the values of `searched` that give a network the highest figure on its validation data.

    Trial t asks a tree-structured Parzen estimator for values, with all trials before it and a seed that follows from
    its recipe and t. So a trial depends on those before it alone, and a search that was killed goes on with the same
    trials. `trials.jsonl` gets a line per trial as soon as it ends, `search.json` has all of them and the best values.
    """

    network: Trainable
    settings: SearchSettings
    searched: tuple[str, ...]
    seed: int = 0
    best: dict[str, float | int] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    activity = "searching settings of"

    @property
    def recipe(self) -> Artifact:
        """The network without what is searched, and the settings of the search."""
        plain = self.network.trial_recipe()
        searched = {"algorithm": ALGORITHM, **self.settings.parameters(), "searched": list(self.searched)}
        recipe = Artifact("network_search", {"network": dict(plain.parameters), **searched}, plain.inputs)
        return recipe.seeded(self.seed)

    @property
    def work(self) -> int:
        """The images of all trials."""
        return self.settings.trials * self.network.trial_work(self.settings.epochs)

    @property
    def loaded(self) -> bool:
        """True once the best values are known."""
        return bool(self.best)

    def load(self, home: Path) -> None:
        """Take the values that were found."""
        result = json.loads((home / RESULT).read_text(encoding="utf-8"))
        self.history, self.best = result["trials"], result["best"]

    def build(self, workshop: Path, progress: Callable[[int], None], store: Any = None) -> dict[str, Any]:
        """Run the trials that are left; give how many there were, and the best one."""
        workshop.mkdir(parents=True, exist_ok=True)
        trials = self._finished(workshop)
        progress(len(trials) * self.network.trial_work(self.settings.epochs))
        while len(trials) < self.settings.trials:
            number = len(trials)
            values, folder = self.suggest(trials), workshop / f"trial-{number}"
            try:
                value = self.network.attempt(values, self.settings.epochs, folder, progress)
            except Diverged:
                value, state = None, "diverged"
            else:
                state = "complete"
            trials.append({"trial": number, **values, "value": value, "state": state})
            _append(workshop / JOURNAL, trials[-1])
            shutil.rmtree(folder, ignore_errors=True)
        for folder in workshop.glob("trial-*"):  # of a trial that was noted just before a kill
            shutil.rmtree(folder)
        complete = [trial for trial in trials if trial["state"] == "complete"]
        if not complete:
            raise InputError(f"no trial of the search of {self.network.name} ended: search lower learning rates")
        best = max(complete, key=lambda trial: (trial["value"], -trial["trial"]))
        values = {name: best[name] for name in self.searched}
        write_json(workshop / RESULT, {"best": values, "trials": trials})
        (workshop / JOURNAL).unlink(missing_ok=True)
        return {"trials": len(trials), "best_trial": best["trial"], "best_value": best["value"], **values}

    def suggest(self, trials: Sequence[Mapping[str, Any]]) -> dict[str, float | int]:
        """The values of the next trial, by those before it."""
        optuna = _import_optuna()
        ranges = self._distributions(optuna)
        seed = int(digest({"search": self.recipe.seed, "trial": len(trials)})[:8], 16)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        for trial in trials:
            params = {name: trial[name] for name in self.searched}
            outcome = {"state": optuna.trial.TrialState.FAIL} if trial["value"] is None else {"value": trial["value"]}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, **outcome))
        params = study.ask(ranges).params
        return {name: round(params[name], 6) if name == "dropout" else params[name] for name in self.searched}

    def _distributions(self, optuna: Any) -> dict[str, Any]:
        kinds, asked = optuna.distributions, self.settings
        low, high = asked.dropout
        known = {
            "learning_rate": kinds.FloatDistribution(*asked.learning_rate, log=True),
            "dropout": kinds.FloatDistribution(low, high, step=DROPOUT_STEP if high > low else None),
            "hidden": kinds.CategoricalDistribution(asked.hidden),
        }
        return {name: known[name] for name in self.searched}

    def _finished(self, workshop: Path) -> list[dict[str, Any]]:
        """The trials of the journal, or of the result; a last line that a kill left half written is run again."""
        journal = workshop / JOURNAL
        if not journal.exists():
            result = workshop / RESULT
            return list(json.loads(result.read_text(encoding="utf-8"))["trials"]) if result.exists() else []
        lines = journal.read_bytes().split(b"\n")
        try:
            trials = [json.loads(line) for line in lines[:-1]]
            whole = all(trial["trial"] == number for number, trial in enumerate(trials))
        except (ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            raise DamagedFile(f"{journal} is damaged: delete {journal.parent} to search again")
        journal.write_bytes(b"".join(line + b"\n" for line in lines[:-1]))
        return trials


def _append(journal: Path, trial: Mapping[str, Any]) -> None:
    """Add one line, on disk before anything else is done."""
    with journal.open("ab") as file:
        file.write(json.dumps(trial).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def check_optuna() -> None:
    """Say before anything is trained that Optuna is not installed; it is not imported for that, which is slow."""
    if find_spec("optuna") is None:
        raise MissingExtra("searches for settings", "search")


def _import_optuna() -> Any:
    check_optuna()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
