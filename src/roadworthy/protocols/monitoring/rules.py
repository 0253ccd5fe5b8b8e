"""Which rule finds the threshold of which monitor."""

from __future__ import annotations

from roadworthy.core.errors import InputError
from roadworthy.monitors import Monitor
from roadworthy.monitors.id_calibration import check_own_share
from roadworthy.monitors.id_threshold import OWN, IdRule
from roadworthy.protocols.monitoring.settings import Settings, ThresholdChoice


def rule_of(choice: ThresholdChoice) -> IdRule:
    """The rule that a study names; one that is not possible is an `InputError`."""
    return IdRule(**choice.model_dump())


def chosen_rule(settings: Settings, label: str, monitor: Monitor) -> IdRule:
    """The rule for the threshold of a monitor: the one named for it, its own where it has one, else that of all.

    The share to reject counts beside a threshold of its own where the monitor learns by it, as the parts of a
    combination do: then it is the one that the study names.
    """
    if label in settings.thresholds:
        return rule_of(settings.thresholds[label])
    if monitor.own_threshold is None or settings.threshold.rule == OWN:
        return rule_of(settings.threshold)
    return IdRule(OWN, settings.threshold.rejected) if monitor.tunes_to_share else IdRule(OWN)


def check_rule(label: str, monitor: Monitor, rule: IdRule) -> None:
    """Refuse a rule that the monitor cannot follow."""
    if rule.rule == OWN and monitor.own_threshold is None:
        raise InputError(f"monitor {label} has no threshold of its own: name rule share, smallest or conformal for it")
    if monitor.decides_itself and rule.rule != OWN:
        raise InputError(
            f"monitor {label} decides by itself, so it takes no threshold of rule {rule.rule}: use rule own"
        )
    check_own_share(monitor, rule)
