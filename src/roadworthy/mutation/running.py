"""Running a study for the undamaged model, for a copy of it and for each damage, each into a folder of its own.

The undamaged model's run is the baseline of the others: what does not depend on the model is taken over from it, and
criteria against a baseline are judged by it.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.api import ProgressBar, Run, execute, no_progress, prepare, terminal_progress
from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.core.remote import absolute_location, is_address
from roadworthy.core.types import UNDISTURBED
from roadworthy.core.validation import check_number
from roadworthy.damages import DAMAGES, Chosen, Damage, default_damages, make_damage
from roadworthy.data import with_limit
from roadworthy.engine.folder import STUDY, RunFolder
from roadworthy.engine.provenance import environment
from roadworthy.mutation.outcomes import (
    CAUGHT,
    IMPOSSIBLE,
    MISSED,
    UNSURE,
    DamageResult,
    in_order,
    nearest,
    outcome_of,
    turned,
)
from roadworthy.plugins import GivenPlugins
from roadworthy.preparing import Prepared
from roadworthy.stored_evidence import stored_parts
from roadworthy.study import Study, load_study
from roadworthy.verdict import Verdict, load_decided
from roadworthy.verdict.criteria import DecidedCriteria
from roadworthy.verdict.judge import Finding

UNDAMAGED, COPY = "undamaged", "undamaged-copy"
"""The folders of the undamaged model's run and of its copy's."""


def mutate_study(
    source: str | Path | dict[str, Any],
    *,
    out: str | Path | None = None,
    model: str | None = None,
    damages: Sequence[str | dict[str, Any]] = (),
    seeds: int = 1,
    limit: int | None = None,
    workers: int | None = None,
    plugins: GivenPlugins = (),
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    progress: ProgressBar = terminal_progress,
) -> dict[str, Any]:
    """Run a study for a model, its undamaged copy and each damage; what `Mutation` holds.

    out       the folder of all runs (default: runs/mutate-<name of the study>); what it holds already is not run again
    model     the model to damage, where the study has several
    damages   names of damages, all their variants, or single ones such as `{"damage": "weight_noise", "sigma": 0.1}`;
              default: all that are known
    seeds     how often each damage that is drawn at random is drawn
    limit     at most so many test images, spread over classes
    """
    check_number("seeds", seeds, 1, 1000)
    if limit is not None:
        check_number("limit", limit, 1, math.inf)
    study, base = load_study(source, plugins=plugins, trust=trust)
    folder = _folder(out, study.name)
    study, name, notes = _of_one_model(study, model, limit, base)
    allowed = {"trust": trust, "unpickle": unpickle, "device": device}
    trial = Trial(study, base, name, load_decided(study.criteria, base), folder, workers, allowed)
    if not trial.criteria.criteria:
        raise InputError("roadworthy mutate judges by the criteria of the study, and it has none: name some in it")
    named = [make_damage(damage) if isinstance(damage, dict) else DAMAGES.get(damage).name for damage in damages]
    _check_usable(folder)
    undamaged, chosen = trial.undamaged(progress)
    tried = _variants(named, seeds, chosen)
    with progress("trying damages", len(tried) + 1) as advance:
        copy, findings = trial.copied(undamaged)
        advance(1)
        results = []
        for damage in tried:
            results.append(trial.tried(damage, undamaged, findings))
            advance(1)
    return {
        "study": study.name,
        "model": name,
        "accuracy": undamaged.accuracy,
        "criteria": {finding.criterion.id: finding.status for finding in findings},
        "copy": copy,
        "results": in_order(results),
        "folder": folder,
        "environment": environment(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "notes": (*notes, *_notes(findings, undamaged)),
    }


@dataclass(frozen=True)
class Answered:
    """Which test images a model names right on undisturbed data, by id; empty where the study does not show these."""

    run: Path
    right: dict[str, bool]

    @property
    def accuracy(self) -> float:
        """The share of right answers; NaN where there are none."""
        return float(np.mean([*self.right.values()])) if self.right else math.nan


@dataclass(frozen=True)
class Trial:
    """A study of one model, its criteria, and where its runs go."""

    study: Study
    base: Path
    model: str
    criteria: DecidedCriteria
    folder: Path
    workers: int | None
    allowed: dict[str, Any]

    def undamaged(self, progress: ProgressBar) -> tuple[Answered, Chosen]:
        """The run of the undamaged model, and the classes that damages of the answers are about.

        It has no baseline, so that criteria against one wait for its copy.
        """
        alone = tuple(one for one in self.criteria.criteria if not one.against)
        criteria = DecidedCriteria(alone, self.criteria.decision if alone else None)
        study = self.study.model_copy(update={"criteria": criteria.content(), "baseline": None})
        prepared = prepare(study, base=self.base, progress=progress, **self.allowed)
        run = self._executed(prepared, UNDAMAGED, progress)
        data = prepared.sources[""].data
        frequent = Counter(data.labels.tolist()).most_common()
        order = sorted(frequent, key=lambda pair: (-pair[1], pair[0]))
        return self._answered(run), Chosen(tuple(data.class_names[label] for label, _ in order[:2]))

    def copied(self, undamaged: Answered) -> tuple[DamageResult, tuple[Finding, ...]]:
        """What came of the undamaged copy, and the findings of its criteria, by which damages are judged."""
        run, verdict = self._run(DAMAGES.get(UNDAMAGED)(), COPY, undamaged)
        before = _stored_verdict(undamaged.run)
        known = {finding.criterion.id for finding in before}
        against = [replace(one, status="pass") for one in verdict.findings if one.criterion.id not in known]
        lost = turned([*before, *against], verdict.findings)
        result = self._result(DAMAGES.get(UNDAMAGED)(), run, verdict, undamaged)
        return replace(result, outcome=outcome_of(lost), turned=lost), verdict.findings

    def tried(self, damage: Damage, undamaged: Answered, findings: Sequence[Finding]) -> DamageResult:
        """What came of one damage."""
        try:
            run, verdict = self._run(damage, damage.slug, undamaged)
        except ModelError as error:
            note = f"its run fails: {error}"
            return replace(_bare(damage), outcome=CAUGHT, verdict="none", note=note)
        except InputError as error:
            return replace(_bare(damage), outcome=IMPOSSIBLE, note=str(error))
        lost = turned(findings, verdict.findings)
        outcome, result = outcome_of(lost), self._result(damage, run, verdict, undamaged)
        close = nearest(findings, verdict.findings) if outcome in (MISSED, UNSURE) else None
        return replace(result, outcome=outcome, turned=lost, nearest=close)

    def _run(self, damage: Damage, slug: str, undamaged: Answered) -> tuple[Run, Verdict]:
        problem = damage.problem(self.study.models[self.model])
        if problem:
            raise InputError(problem)
        models = {self.model: damage.entry(self.study.models[self.model])}
        update = {"models": models, "criteria": self.criteria.content(), "baseline": str(undamaged.run)}
        study = self.study.model_copy(update=update)
        prepared = prepare(study, base=self.base, accept_chance=True, progress=no_progress, **self.allowed)
        run = self._executed(prepared, slug, no_progress)
        return run, run.verdict()

    def _executed(self, prepared: Prepared, slug: str, progress: ProgressBar) -> Run:
        """The run of a prepared study; one that is there already, of the same study, is opened."""
        folder = RunFolder(self.folder / "runs" / slug)
        stored = folder.path / STUDY
        if folder.is_finished and stored.read_text("utf-8") == prepared.stored_study().to_yaml():
            return Run(folder)
        return execute(prepared, folder.path, workers=self.workers, progress=progress)

    def _answered(self, run: Run) -> Answered:
        """What the model answers to undisturbed test images, from the first stored case of them."""
        for parts in stored_parts(run.folder, run.record).values():
            for case in (case for part in parts for case in part.cases):
                is_clean = case.stimulus.name == UNDISTURBED and case.system == self.model and not case.failure
                readouts = case.load() if is_clean else None
                if readouts is not None and readouts.classified is not None:
                    return Answered(
                        run.path, dict(zip(readouts.ids, readouts.classified.correct.tolist(), strict=True))
                    )
        return Answered(run.path, {})

    def _result(self, damage: Damage, run: Run, verdict: Verdict, undamaged: Answered) -> DamageResult:
        accuracy = self._answered(run).accuracy
        drop = undamaged.accuracy - accuracy
        return replace(_bare(damage), accuracy=accuracy, drop=drop, verdict=verdict.status, run=str(run.path))


def _bare(damage: Damage) -> DamageResult:
    return DamageResult(damage.name, damage.label, damage.slug, damage.parameters(), MISSED)


def _folder(out: str | Path | None, name: str) -> Path:
    if out is not None and is_address(os.fspath(out)):
        raise InputError(f"roadworthy mutate keeps its runs in a folder of this machine, not at {out}")
    return Path(absolute_location(out or Path("runs") / f"mutate-{name}"))


def _check_usable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose a folder with `out=`")
    if (folder / "run.json").exists():
        raise InputError(f"{folder} holds a run: choose another folder with `out=`, one for runs of many damages")


def _of_one_model(study: Study, model: str | None, limit: int | None, base: Path) -> tuple[Study, str, list[str]]:
    """The study with one model alone and at most so many test images, the model's name, and what is to be said."""
    if study.sources or study.data is None:
        raise InputError(
            "roadworthy mutate takes a study of one source: write one with data and models at the top, and not sources"
        )
    if model is not None and model not in study.models:
        raise UnknownName("model of the study", model, study.models)
    notes = []
    name = model or next(iter(study.models))
    if model is None and len(study.models) > 1:
        notes.append(f"the study has {len(study.models)} models, and the first, {name}, was damaged: see `model=`")
    update: dict[str, Any] = {"models": {name: study.models[name]}, "until_decided": False}
    if limit is not None:
        test = with_limit(study.data.test, limit, base)
        update["data"] = study.data.model_copy(update={"test": test})
        notes.append(f"at most {limit:,} test images were shown: fewer objects catch fewer damages")
    if study.baseline:
        notes.append("the baseline of the study was left out: here it is the undamaged model")
    return study.model_copy(update=update), name, notes


def _variants(named: Sequence[str | Damage], seeds: int, chosen: Chosen) -> list[Damage]:
    """The damages to try, each once."""
    if not named:
        return default_damages(seeds=seeds, chosen=chosen)
    variants: list[Damage] = []
    for one in named:
        variants += default_damages((one,), seeds=seeds, chosen=chosen) if isinstance(one, str) else [one]
    return [one for row, one in enumerate(variants) if one not in variants[:row]]


def _notes(findings: Sequence[Finding], undamaged: Answered) -> list[str]:
    """What a reader must know of criteria that cannot catch anything."""
    notes = []
    for finding in findings:
        if finding.status != "pass":
            notes.append(
                f"{finding.criterion.id} is {finding.status} for the undamaged copy already, so that it catches nothing"
            )
    if not any(finding.criterion.against for finding in findings):
        notes.append(
            "no criterion is against the baseline (the undamaged model): such a one notices the smallest damages; "
            "the templates of criteria show how it is written"
        )
    if not undamaged.right:
        notes.append("the study shows no undisturbed test images, so that no drop of clean accuracy is known")
    return notes


def _stored_verdict(run: Path) -> tuple[Finding, ...]:
    from roadworthy.api import open_run

    return open_run(run).verdict().findings
