"""Which rule finds the threshold of which monitor."""

from __future__ import annotations

from roadworthy.core.errors import InputError
from roadworthy.monitors import Monitor
from roadworthy.monitors.id_threshold import IdRule
from roadworthy.protocols.monitoring.settings import Settings, ThresholdChoice


def rule_of(choice: ThresholdChoice) -> IdRule:
    """The rule that a study names; one that is not possible is an `InputError`."""
    return IdRule(**choice.model_dump())


def chosen_rule(settings: Settings, label: str, monitor: Monitor) -> IdRule:
    """The rule for the threshold of a monitor: the one named for it, its own where it has one, else that of all."""
    if label in settings.thresholds:
        return rule_of(settings.thresholds[label])
    return IdRule("own") if monitor.own_threshold is not None else rule_of(settings.threshold)


def check_rule(label: str, monitor: Monitor, rule: IdRule) -> None:
    """Refuse a rule that the monitor cannot follow."""
    if rule.rule == "own" and monitor.own_threshold is None:
        raise InputError(f"monitor {label} has no threshold of its own: name rule share, smallest or conformal for it")
    if monitor.decides_itself and rule.rule != "own":
        raise InputError(
            f"monitor {label} decides by itself, so it takes no threshold of rule {rule.rule}: use rule own"
        )
