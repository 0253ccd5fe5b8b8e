"""Statistics: how sure one can be of a metric when the independent unit is the physical object, not the image."""

from roadworthy.statistics.bootstrap import GroupBootstrap, bootstrap_interval, paired_interval
from roadworthy.statistics.intervals import Interval, further_groups, mean_interval, proportion_interval, wilson

__all__ = [
    "GroupBootstrap",
    "Interval",
    "bootstrap_interval",
    "further_groups",
    "mean_interval",
    "paired_interval",
    "proportion_interval",
    "wilson",
]
