"""Indicators as rules for Prometheus: what is recorded over a window, and when alerts fire.

The service counts, for each indicator, images and the sum of what they add, in two counters with the one label
`indicator`. All else follows here: sums over all instances in a window, means, and for each bound the test of
`statistics.alarm_limits`, which holds for any number of images.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from roadworthy.core.errors import InputError
from roadworthy.indicators.collecting import Indicators
from roadworthy.indicators.indicator import Indicator
from roadworthy.statistics.alarm_limits import AlarmLimit

IMAGES, SUM = "roadworthy_indicator_images_total", "roadworthy_indicator_sum_total"
"""The counters of the service."""
IN_WINDOW, SUM_IN_WINDOW, MEAN = "roadworthy:images:window", "roadworthy:sum:window", "roadworthy:mean:window"
"""What is recorded of them."""
SHARE, APPROVED, EVIDENCE = "roadworthy:share:window", "roadworthy:share:approved", "roadworthy:evidence:window"
"""The share that must not be large, the approved one, and the evidence that it is beyond it."""
_PART = "clamp_min({0}, 1e-12) * ln(clamp_min({0}, 1e-12) / {1})"
DIVERGENCE = f"{IN_WINDOW} * ({_PART.format(SHARE, APPROVED)} + {_PART.format(f'(1 - {SHARE})', f'(1 - {APPROVED})')})"
"""n KL(share, approved); of a share of 0 or 1 one of its parts is next to nothing."""
BEYOND, SILENT = "RoadworthyBeyondBound", "RoadworthyTooFewImages"
WINDOW = r"[1-9]\d*[smhdwy]"


def check_window(window: str) -> str:
    """The length of a window as Prometheus writes it; an `InputError` where it is none.

    >>> check_window("7d")
    '7d'
    """
    if not re.fullmatch(WINDOW, window):
        raise InputError(f"`window='{window}'` is not a length of time: write such as 12h, 1d or 2w")
    return window


def rules(indicators: Indicators, window: str) -> dict[str, Any]:
    """The rule file as a plain dictionary."""
    alarms = [(own, own.alarm) for own in indicators.indicators if own.alarm is not None]
    recorded: list[dict[str, Any]] = [
        {"record": IN_WINDOW, "expr": f"sum by (indicator) (increase({IMAGES}[{window}]))"},
        {"record": SUM_IN_WINDOW, "expr": f"sum by (indicator) (increase({SUM}[{window}]))"},
        {"record": MEAN, "expr": f"{SUM_IN_WINDOW} / {IN_WINDOW}"},
    ]
    for own, alarm in alarms:
        mean = f"{MEAN}{_chosen(own)}"
        share = f"1 - {mean}" if own.watchable.side == "at_least" else mean
        recorded.append({"record": APPROVED, "expr": f"vector({alarm.share:.17g})", "labels": {"indicator": own.id}})
        recorded.append({"record": SHARE, "expr": share, "labels": {"indicator": own.id}})
    recorded.append({"record": EVIDENCE, "expr": DIVERGENCE})
    alerts = [alert for own, alarm in alarms for alert in (_beyond(own, alarm), _silent(own, alarm, window))]
    return {"groups": [{"name": "roadworthy", "rules": [*recorded, *alerts]}]}


def rule_file(indicators: Indicators, window: str) -> str:
    """The rule file as YAML."""
    head = (
        f"# Rules of Roadworthy. A service counts images in {IMAGES}{{indicator=...}}\n"
        f"# and what they add in {SUM}{{indicator=...}}: see indicators.json.\n"
    )
    return head + yaml.safe_dump(rules(indicators, window), sort_keys=False, allow_unicode=True, width=110)


def expression(own: Indicator, alarm: AlarmLimit) -> str:
    """The test of a bound in PromQL: n KL(share, approved) > log(1/level) where the share is above the approved one."""
    chosen = _chosen(own)
    evidence = f"{EVIDENCE}{chosen} > {math.log(1 / alarm.level):.17g}"
    return f"{evidence} and {SHARE}{chosen} > {APPROVED}{chosen}"


def _chosen(own: Indicator) -> str:
    return f'{{indicator="{own.id}"}}'


def _beyond(own: Indicator, alarm: AlarmLimit) -> dict[str, Any]:
    watchable = own.watchable
    where = ", ".join(f"{key} {value}" for key, value in watchable.where.items())
    side = "above" if watchable.side == "at_most" else "below"
    return {
        "alert": BEYOND,
        "expr": expression(own, alarm),
        "labels": {"indicator": own.id, "needs_labels": str(own.needs_labels).lower(), "severity": "page"},
        "annotations": {
            "summary": literal(f"{watchable.name} is {side} its approved bound of {watchable.bound:.4g} ({where})"),
            "description": literal(
                f"{watchable.basis}. Each image adds {watchable.adds}. The chance of this alarm in a window while the "
                f"bound holds is at most {alarm.level:g}. {watchable.note}"
            ),
        },
    }


def _silent(own: Indicator, alarm: AlarmLimit, window: str) -> dict[str, Any]:
    counted = f"{IN_WINDOW}{_chosen(own)}"
    return {
        "alert": SILENT,
        "expr": f"{counted} < {alarm.images} or absent({counted})",
        "for": window,
        "labels": {"indicator": own.id, "needs_labels": str(own.needs_labels).lower(), "severity": "info"},
        "annotations": {
            "summary": literal(
                f"fewer than {alarm.images} images per {window} were counted for {own.watchable.name}: its alarm says "
                "little"
            )
        },
    }


def literal(text: str) -> str:
    """A text that the templates of Prometheus show as it is, in one line.

    >>> literal("model {{ $value }}")
    'model {{ "{{" }} $value }}'
    """
    return " ".join(text.split()).replace("{{", '{{ "{{" }}')
