"""Statistics: how sure one can be of a metric when the independent unit is the physical object, not the image."""

from roadworthy.statistics.anova import (
    AnovaTable,
    FTest,
    anova,
    brown_forsythe,
    repeated_anova,
    robust_anova,
    thesis_p,
    welch_anova,
)
from roadworthy.statistics.bootstrap import GroupBootstrap, bootstrap_interval, paired_interval
from roadworthy.statistics.critical_difference import CriticalDifference, PairedRank, critical_difference, wilcoxon_p
from roadworthy.statistics.decisions import (
    aurc_estimate,
    class_mcc_estimates,
    decision_estimates,
    effect_estimates,
    stream_change_estimates,
)
from roadworthy.statistics.estimates import Estimate
from roadworthy.statistics.intervals import further_groups, mean_interval, proportion_interval, wilson
from roadworthy.statistics.paired import McNemar, holm, mcnemar, p_text, paired_p, sign_flip_p
from roadworthy.statistics.posthoc import (
    Comparison,
    comparison_half_widths,
    games_howell,
    grouping_letters,
    posthoc,
    repeated_posthoc,
)
from roadworthy.statistics.studentized_range import range_quantile, range_tail

__all__ = [
    "AnovaTable",
    "Comparison",
    "CriticalDifference",
    "Estimate",
    "FTest",
    "GroupBootstrap",
    "McNemar",
    "PairedRank",
    "anova",
    "aurc_estimate",
    "bootstrap_interval",
    "brown_forsythe",
    "class_mcc_estimates",
    "comparison_half_widths",
    "critical_difference",
    "decision_estimates",
    "effect_estimates",
    "further_groups",
    "games_howell",
    "grouping_letters",
    "holm",
    "mcnemar",
    "mean_interval",
    "p_text",
    "paired_interval",
    "paired_p",
    "posthoc",
    "proportion_interval",
    "range_quantile",
    "range_tail",
    "repeated_anova",
    "repeated_posthoc",
    "robust_anova",
    "sign_flip_p",
    "stream_change_estimates",
    "thesis_p",
    "welch_anova",
    "wilcoxon_p",
    "wilson",
]
