"""Judging a stored run: by which criteria, against which baseline, and what is taken as stored where that is gone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.baseline_criteria import AgainstBaseline, named_baseline, stored_measure
from roadworthy.core.errors import InputError
from roadworthy.core.record import RunRecord
from roadworthy.preparing import check_criteria
from roadworthy.protocols import protocol_of
from roadworthy.stored_evidence import judge_run, load_evidence, stored_parts, stored_settings
from roadworthy.verdict import Criterion, DecidedCriteria, Decision, Measure, Verdict, load_criteria, load_decided
from roadworthy.verdict.criteria import CriteriaSource

if TYPE_CHECKING:
    from roadworthy.stored import Run


def judge_stored(run: Run, criteria: CriteriaSource, baseline: str) -> Verdict:
    """The verdict of a run by criteria (None: its own), some perhaps against a baseline (empty: its own)."""
    record = run.record
    chosen = own_criteria(record) if criteria is None else load_decided(criteria)
    location = baseline or named_baseline(run.path)
    parts, settings = stored_parts(run.folder, record), stored_settings(record)
    check_criteria(chosen.criteria, parts, settings, record.questions, bool(location))
    against = open_baseline(run, chosen, location)
    evidence = load_evidence(run.folder, record)
    measure = against.measure if against else None
    verdict = judge_run(chosen.criteria, evidence, run.folder, record, decision=chosen.decision, against=measure)
    return replace(
        verdict,
        decision=chosen.decision,
        baseline=against.run if against else None,
        record=record,
        protocols=protocols_of(chosen.criteria, record),
    )


def open_baseline(run: Run, chosen: DecidedCriteria, location: str) -> AgainstBaseline | None:
    """The baseline that criteria of a run are judged against, opened; None where no criterion asks for one."""
    if not any(criterion.against for criterion in chosen.criteria):
        return None
    try:
        opened = run.beside(location)
        opened.folder.check_finished()
    except InputError as error:
        raise InputError(f"the baseline cannot be read ({error}): name it with `baseline=`") from None
    opened.require_plugins()
    return AgainstBaseline((opened.folder, opened.record), (run.folder, run.record))


def against_or_stored(run: Run, own: DecidedCriteria) -> Measure | None:
    """What criteria against a baseline are told; as verdict.json holds it, with a warning, where it is gone."""
    try:
        against = open_baseline(run, own, named_baseline(run.path))
        return against.measure if against else None
    except InputError as error:
        names = ", ".join(criterion.id for criterion in own.criteria if criterion.against)
        warnings.warn(f"not computed anew: criteria against the baseline ({names}): {error}", stacklevel=2)
        return stored_measure(run.path)


def protocols_of(criteria: Sequence[Criterion], record: RunRecord) -> dict[str, str]:
    """The protocol that each criterion speaks of, by its id."""
    return {criterion.id: protocol_of(criterion, record.protocols).name for criterion in criteria}


def own_criteria(record: RunRecord) -> DecidedCriteria:
    """The criteria of a run's own verdict, and who decided on them."""
    decision = Decision.model_validate(record.decision) if record.decision else None
    return DecidedCriteria(tuple(load_criteria(record.criteria or None)), decision)
