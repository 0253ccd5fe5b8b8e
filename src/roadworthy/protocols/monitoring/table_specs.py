"""The tables of a monitor benchmark: what a row of each says, and in which columns."""

from __future__ import annotations

from roadworthy.core.tables import ANSWER, ESTIMATE, TableSpec
from roadworthy.protocols.monitoring.names import NAME

BOUNDED = ("metric", "value", "lo", "hi")
"""A value with its bounds, where the table says itself what these rest on."""

DECISIONS = TableSpec(
    NAME,
    "A metric of one monitor on one model in one benchmark: of a view (what counts as positive) and a part of the "
    "stream; the monitor `none` is the model alone.",
    key=("model", "benchmark", "monitor", "view", "part", "metric"),
    columns=("model", "benchmark", "ood_kind", "near", "monitor", "view", "part", *ESTIMATE),
)
OVERALL = TableSpec(
    f"{NAME}_overall",
    "The mean of such a metric over the benchmarks of one kind or of `all`; each benchmark counts once.",
    key=("model", "ood_kind", "monitor", "view", "part", "metric"),
    columns=("model", "ood_kind", "monitor", "view", "part", *BOUNDED, "sets", "reason"),
)
IMPACT_ON_ID = TableSpec(
    f"{NAME}_id",
    "What one monitor does to one model on all ID test images: class MCC alone and with it, and the share rejected.",
    key=("model", "monitor", "metric"),
    columns=("model", "monitor", *ESTIMATE),
)
THRESHOLDS = TableSpec(
    f"{NAME}_thresholds",
    "The threshold of one monitor on one model, for all answers or for one predicted class: the rule, the share that "
    "it was to reject, the share of the threshold's own images and of ID test images that it rejects.",
    key=("model", "monitor", "class"),
    columns=(
        *("model", "monitor", "class", "rule", "threshold", "rejected", "confidence", "achieved", "images", "objects"),
        *("rank", "value", "lo", "hi", "n", "groups", "promise", "notes", "reason"),
    ),
)
COMPETENCE = TableSpec(
    f"{NAME}_competence",
    "How well one model classifies one part of its undisturbed data.",
    key=("model", "part", "metric"),
    columns=("model", "architecture", "undertrained", "part", *ESTIMATE),
)
SETS = TableSpec(
    f"{NAME}_sets",
    "One benchmark: what its OOD side is made from, how many images each side has, and how they are mixed.",
    key=("benchmark",),
    columns=(
        *("benchmark", "ood_kind", "near", "made_from", "has_label", "keeps_label", "attacked"),
        *("images_id", "images_ood", "objects", "ratio", "order", "leaked", "note"),
    ),
)
RISK = TableSpec(
    f"{NAME}_risk",
    "The risk of one monitor on one model in one benchmark: the share of wrong answers among the accepted ones, where "
    "the images of highest score are accepted up to a coverage (`accepted` is the share that equal scores allow).",
    key=("model", "benchmark", "monitor", "coverage"),
    columns=("model", "benchmark", "monitor", "coverage", "accepted", "risk", "threshold"),
)
SWEEP = TableSpec(
    f"{NAME}_sweep",
    "What one monitor on one model would do with another threshold, in one benchmark or on average over `all`: the "
    "share of ID validation images that it would reject, and what follows.",
    key=("model", "benchmark", "monitor", "rejected_id"),
    columns=(
        *("model", "benchmark", "monitor", "rejected_id", "threshold"),
        *("safety_gain", "residual_hazard", "availability_cost", "recall", "fpr"),
    ),
)
RANKS = TableSpec(
    f"{NAME}_ranks",
    "The mean rank of one monitor by MCC over the benchmarks of one model or of `all`, in one view, with the tests "
    "whether monitors differ at all; monitors that share a letter are not told apart.",
    key=("model", "view", "monitor"),
    columns=(
        *("model", "view", "monitor", "rank", "sets", "friedman", "friedman_p", "iman_davenport", "iman_davenport_p"),
        *("distance", "cliques", "warning"),
    ),
)
PAIRS = TableSpec(
    f"{NAME}_pairs",
    "Two monitors compared by their ranks over benchmarks (Nemenyi) and by their MCC set by set (Wilcoxon, Holm).",
    key=("model", "view", "monitor_a", "monitor_b"),
    columns=("model", "view", "monitor_a", "monitor_b", "rank_difference", "nemenyi_p", "wilcoxon_p_holm"),
)
EVENTS = TableSpec(
    f"{NAME}_stream",
    "What one monitor on one model does in the course of the stream: frames until an onset of OOD images is noticed, "
    "and runs of false alarms.",
    key=("model", "benchmark", "monitor", "metric"),
    columns=("model", "benchmark", "monitor", *BOUNDED, "n", "reason"),
)
TIMELINE = TableSpec(
    f"{NAME}_timeline",
    "A stretch of the stream: the shares of OOD images, of rejected ones and of wrong answers, and how much evidence "
    "the two tests of the assumption have at its end (log wealth).",
    key=("model", "benchmark", "monitor", "bin"),
    columns=(
        *("model", "benchmark", "monitor", "bin", "from", "to", "ood", "rejected", "wrong"),
        *("log_wealth_exchangeability", "log_wealth_rejection_rate", "alarm"),
    ),
)
ALARMS = TableSpec(
    f"{NAME}_alarms",
    "When a test says that the stream is no longer like the images that the threshold comes from: the number of the "
    "object at which it does, beside the first OOD object.",
    key=("model", "benchmark", "monitor", "test"),
    columns=(
        *("model", "benchmark", "monitor", "test", "level", "alarm_at", "onset", "delay", "objects", "log_wealth"),
        "reason",
    ),
)
TIMING = TableSpec(
    f"timing_{NAME}",
    "What one model costs at runtime with one monitor or alone (monitor `none`), image by image, as a guard in Python "
    "or as one exported ONNX file (`form`): seconds with 95 % bounds, `extra` (the median of what they are beyond "
    "those of the model alone on the same image) and the ratio of medians, bytes that the monitor keeps, the most "
    "memory of a process of its own and how much that exceeds the model alone (`extra_resident_bytes`), where, when.",
    key=("model", "monitor", "form"),
    columns=(
        *("model", "monitor", "form", "images", "different", "median", "median_lo", "median_hi"),
        *("p95", "p95_lo", "p95_hi", "p99", "p99_lo", "p99_hi", "extra", "extra_lo", "extra_hi", "overhead_median"),
        *("state_bytes", "resident_bytes", "extra_resident_bytes", "machine", "measured", "asked", "system"),
        *("reason", "no_memory"),
    ),
    added_later=(
        *("form", "different", "median_lo", "median_hi", "p95_lo", "p95_hi", "p99_lo", "p99_hi"),
        *("extra", "extra_lo", "extra_hi", "resident_bytes", "extra_resident_bytes"),
        *("machine", "measured", "asked", "no_memory"),
    ),
)
TIMES = TableSpec(
    f"timing_{NAME}_images",
    f"The seconds that one image took with one model, monitor and form, turn by turn, which {TIMING.name} and criteria "
    "on cost are computed from; `image` is its place among the test images.",
    key=("model", "monitor", "form", "turn"),
    columns=("model", "monitor", "form", "turn", "image", "seconds"),
)
GALLERY = TableSpec(
    f"{NAME}_gallery",
    "The picture in `media` of a few images of the OOD side of one benchmark, or of the ID side, which has no name.",
    key=("benchmark",),
    columns=("benchmark", "media", "images"),
)
GALLERY_ANSWERS = TableSpec(
    f"{NAME}_gallery_answers",
    "What one model answered to one image of the gallery, which counts from 0 in its picture; one that shows none "
    "of the classes has no true class.",
    key=("model", "benchmark", "image"),
    columns=("model", "benchmark", *ANSWER),
)

TABLE_SPECS = (
    *(DECISIONS, OVERALL, IMPACT_ON_ID, THRESHOLDS, COMPETENCE, SETS, RISK, SWEEP, RANKS, PAIRS),
    *(EVENTS, TIMELINE, ALARMS, TIMING, TIMES, GALLERY, GALLERY_ANSWERS),
)
