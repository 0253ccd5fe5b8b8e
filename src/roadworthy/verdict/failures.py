"""What of a run failed, by its record: cases of models, and monitors of an OD-test. Such a run never passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Failed:
    """A case or a monitor (its `kind`) that failed, and why."""

    name: str
    reason: str
    kind: Literal["case", "monitor"] = "case"


def failed_parts(record: Mapping[str, Any]) -> tuple[Failed, ...]:
    """Everything that failed, in the order of the record (run.json)."""
    cases = (Failed(_case_name(case), case["reason"]) for case in record["cases"] if case["status"] == "failed")
    sources = record.get("od_test", {}).get("sources", {})
    monitors = (
        Failed(f"monitor {label} of source {name}", reason, "monitor")
        for name, source in sources.items()
        for label, reason in source["failed"].items()
    )
    return *cases, *monitors


def count_failed(failed: Sequence[Failed]) -> str:
    """How many there are of them, in words.

    >>> count_failed([Failed("m at fog 3", "no answer"), Failed("m at fog 5", "no answer")])
    '2 cases'
    """
    return f"{len(failed):,} {failed[0].kind}{'s' if len(failed) > 1 else ''}" if failed else "nothing"


def _case_name(case: Mapping[str, Any]) -> str:
    """`tiny at fog 3`; the protocol is named where it is not classification.

    >>> stimulus = {"name": "none", "level": 0, "repeat": 0}
    >>> _case_name({"system": "tiny", "protocol": "ood", "tags": {"ood_set": "swirl"}, "stimulus": stimulus})
    'tiny at outliers swirl (ood)'
    """
    stimulus, tags = case["stimulus"], case.get("tags", {})
    shown = f"outliers {tags['ood_set']}" if "ood_set" in tags else f"{stimulus['name']} {stimulus['level']}"
    repeat = f", repeat {stimulus['repeat']}" if stimulus["repeat"] else ""
    protocol = f" ({case['protocol']})" if case["protocol"] != "classification" else ""
    return f"{case['system']} at {shown}{repeat}{protocol}"
