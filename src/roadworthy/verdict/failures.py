"""What of a run failed, by its record: cases of models, and whatever else was asked. Such a run never passes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from roadworthy.core.record import AskedCase, CaseRecord, RunRecord
from roadworthy.core.types import UNDISTURBED


@dataclass(frozen=True)
class Failed:
    """A case of a model, or a whole system of another `kind` (a monitor), that failed, and why."""

    name: str
    reason: str
    kind: str = "case"


def failed_parts(record: RunRecord) -> tuple[Failed, ...]:
    """Everything that failed, in the order of the record (run.json); of a monitor and the like, the first cause."""
    cases: dict[str, Failed] = {}
    systems: dict[str, Failed] = {}
    for protocol, source, asked, case in record.asked():
        if case.status != "failed":
            continue
        if case.kind == "model":
            cases.setdefault(asked.case, Failed(_case_name(protocol, asked, case, source), case.reason))
        else:
            model, several = asked.labels.get("model", ""), len(record.sources[source].models) > 1
            system = asked.system if model else f"of {asked.system}"
            name = _system_name(case.kind, system, model if several else "", source)
            systems.setdefault(name, Failed(name, case.reason, case.kind))
    for own in record.protocols.values():
        for source, part in own.sources.items():
            for label, reason in part.context.get("failed", {}).items():
                name = _system_name("monitor", label, "", source)
                systems.setdefault(name, Failed(name, reason, "monitor"))
    return *cases.values(), *systems.values()


def failure_lines(record: RunRecord) -> list[str]:
    """What failed and why, a line each; cases of a model that all failed for one cause are one line."""
    asked_of: defaultdict[tuple[str, str], dict[str, CaseRecord]] = defaultdict(dict)
    for _, source, asked, case in record.asked():
        if case.kind == "model":
            asked_of[source, asked.system][asked.case] = case
    together = {key: own for key, own in asked_of.items() if len(own) > 1 and _is_one_failure([*own.values()])}
    names = dict[str, str]()
    for protocol, source, asked, case in record.asked():
        if (source, asked.system) in together and case.kind == "model":
            cases, of_source = len(together[source, asked.system]), f" ({source})" if source else ""
            names[_case_name(protocol, asked, case, source)] = f"{asked.system}{of_source}, all {cases:,} cases"
    lines = (f"{names.get(part.name, part.name)}: {part.reason}" for part in failed_parts(record))
    return [*dict.fromkeys(lines)]


def _is_one_failure(cases: Sequence[CaseRecord]) -> bool:
    """Whether all cases failed, for one reason."""
    return {case.status for case in cases} == {"failed"} and len({case.reason for case in cases}) == 1


def count_failed(failed: Sequence[Failed]) -> str:
    """How many there are of them by kind, in words.

    >>> count_failed([Failed("m at fog 3", "no answer"), Failed("m at fog 5", "no answer"), Failed("a", "", "monitor")])
    '2 cases and 1 monitor'
    """
    counts = Counter(part.kind for part in failed)
    parts = [f"{count:,} {kind}{'s' if count > 1 and not kind.endswith('s') else ''}" for kind, count in counts.items()]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]])) or "nothing"


def _system_name(kind: str, system: str, model: str, source: str) -> str:
    """`monitor msp of model vgg of source signs`; model and source are named where there are several."""
    return f"{kind} {system}" + (f" of model {model}" if model else "") + (f" of source {source}" if source else "")


def _case_name(protocol: str, asked: AskedCase, case: CaseRecord, source: str) -> str:
    """`tiny at fog 3`; the protocol is named where it noted more of the case than what is shown to whom."""
    stimulus = case.stimulus
    has_level = stimulus.level or stimulus.name == UNDISTURBED
    shown = f"{stimulus.name} {stimulus.level}" if has_level else f"outliers {stimulus.name}"
    repeat = f", repeat {stimulus.repeat}" if stimulus.repeat else ""
    noted = ", ".join(filter(None, [source, protocol if asked.labels else ""]))
    return f"{asked.system} at {shown}{repeat}" + (f" ({noted})" if noted else "")
