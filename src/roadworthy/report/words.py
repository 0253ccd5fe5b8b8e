"""The words of the report: names and definitions of metrics, numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roadworthy.metrics import current_name, higher_is_better
from roadworthy.statistics import p_text

NO_BREAK = "\u00a0"
MISSING = "n/a"


@dataclass(frozen=True)
class MetricWords:
    """The label, definition and rounding of a metric: in `percent` where that is usual, else to `digits` decimals.

    `infinite` is what an infinite value says.
    """

    label: str
    definition: str
    percent: bool = False
    digits: int = 3
    infinite: str = "infinite"


METRIC_WORDS = {
    "accuracy": MetricWords("Accuracy", "Share of images whose predicted class is the true one.", percent=True),
    "auroc": MetricWords(
        "AUROC",
        "Does confidence tell right from wrong answers? The chance that a correct answer (the positive class) has a "
        "higher confidence than an incorrect one; ties count half. 1 is perfect, 0.5 is no better than guessing. It "
        "does not exist where all answers are correct or all are wrong.",
    ),
    "brier": MetricWords(
        "Brier score",
        "Squared error of the probabilities, summed over classes, averaged over images. 0 is perfect, 2 worst.",
    ),
    "brier_mean": MetricWords("Brier score per class", "The Brier score divided by the number of classes.", digits=4),
    "ece": MetricWords(
        "ECE",
        "Expected calibration error: the gap between confidence and accuracy in ten bins of confidence, averaged by "
        "how many answers fall in each. 0 is perfect.",
    ),
    "nll": MetricWords(
        "NLL",
        "Negative log-likelihood of the true class in nats: punishes confident mistakes hardest. 0 is perfect.",
    ),
    "aupr_in": MetricWords("AUPR-in", "Area under precision and recall, in-distribution images as the positive class."),
    "aupr_out": MetricWords("AUPR-out", "Area under precision and recall, outliers as the positive class."),
    "fpr95_in": MetricWords(
        "FPR95-in: outliers accepted",
        "Share of outliers still accepted by the strictest threshold that accepts at least 95 % of the in-distribution "
        "images (the positive class); images of equal score fall on one side. 0 is perfect.",
        percent=True,
    ),
    "fpr95_out": MetricWords(
        "FPR95-out: in-distribution rejected",
        "Share of in-distribution images rejected by the mildest threshold that rejects at least 95 % of the outliers "
        "(the positive class); images of equal score fall on one side. 0 is perfect.",
        percent=True,
    ),
    "fpr95_right": MetricWords(
        "FPR95-right: wrong answers accepted",
        "Share of wrong answers still accepted by the strictest threshold on confidence that accepts at least 95 % of "
        "the right answers (the positive class); answers of equal confidence fall on one side. 0 is perfect. It does "
        "not exist where all answers are right or all are wrong.",
        percent=True,
    ),
    "mean_confidence": MetricWords("Mean confidence", "Average of the largest class probability.", percent=True),
    "scenario_coverage": MetricWords(
        "Scenario coverage", "Share of the needed combinations of conditions.", percent=True
    ),
    "neuron_activation_1": MetricWords("Neuron 1-activation", "Share of on-off states of neurons shown.", percent=True),
    "neuron_activation_2": MetricWords("Neuron 2-activation", "The same of pairs of neurons.", percent=True),
    "neuron_activation_3": MetricWords("Neuron 3-activation", "The same of triples of neurons.", percent=True),
    "neuron_pattern": MetricWords("Activation pattern", "Share of images unlike most of their scenario.", percent=True),
    "confidence_loss": MetricWords(
        "Confidence loss", "Mean change of the true class's probability under the worst transformer."
    ),
    "accuracy_discounted": MetricWords("Accuracy times coverage", "What was not shown counts as failed.", percent=True),
    "time_between_failures": MetricWords(
        "Time between failures", "Mean time or distance from failure to failure.", digits=1, infinite="no failure"
    ),
    "domain_share": MetricWords(
        "Share of the field that meets the threshold", "By the field's frequencies.", percent=True
    ),
    "domain_expected": MetricWords("Expected in the field", "The metric by the field's frequencies.", percent=True),
    "interpretation_precision": MetricWords(
        "Interpretation precision", "Share of hot cells that hide the object.", percent=True
    ),
    "occlusion_covering": MetricWords(
        "Occlusion covering", "Share of the cells that hide the object that are hot.", percent=True
    ),
    "weighted_confusion": MetricWords(
        "Weighted confusion", "Cost of mistakes by severity; 0 is perfect.", percent=True
    ),
    "overconfidence": MetricWords("Overconfidence", "The part of ECE from bins that promise more than they keep."),
    "underconfidence": MetricWords("Underconfidence", "The part of ECE from bins that keep more than they promise."),
}


def words_of(metric: str) -> MetricWords:
    """The words of a metric or of its drop; one that is not known here keeps its name.

    >>> words_of("accuracy_drop").label, words_of("ece_drop").label, words_of("my_metric").label
    ('Drop of accuracy', 'Rise of ECE', 'my_metric')
    """
    base = current_name(metric.removesuffix("_drop"))
    words = METRIC_WORDS.get(base, MetricWords(base, ""))
    if not metric.endswith("_drop"):
        return words
    change = "Drop" if higher_is_better(base) else "Rise"
    label = words.label if words.label[:2].isupper() else words.label[0].lower() + words.label[1:]
    return MetricWords(
        f"{change} of {label}", "How much worse than on undisturbed data: positive is worse.", words.percent
    )


def number(metric: str, value: float) -> str:
    """A value as people read it; what is not exactly 0 or 1 is never rounded to it.

    >>> [number("accuracy", x).replace(NO_BREAK, " ") for x in (0.9731, 1.0, 0.99996, 0.0001, math.nan)]
    ['97.3 %', '100 %', '>99.9 %', '<0.1 %', 'n/a']
    >>> number("ece", 0.0342), number("accuracy_drop", -0.012).replace(NO_BREAK, " ")
    ('0.034', '−1.2 points')
    >>> number("time_between_failures", math.inf)
    'no failure'
    """
    if value == math.inf:
        return words_of(metric).infinite
    if not math.isfinite(value):
        return MISSING
    if metric.endswith("_drop") and words_of(metric).percent:
        return f"{_decimal(100 * value, 1)}{NO_BREAK}points"
    if words_of(metric).percent:
        return f"{_share(value)}{NO_BREAK}%"
    return _decimal(value, words_of(metric).digits)


def short_number(metric: str, value: float) -> str:
    """As `number`, without its unit: for the cells of a heat map.

    >>> short_number("accuracy", 0.9731)
    '97.3'
    """
    return number(metric, value).partition(NO_BREAK)[0]


def bounds(metric: str, lo: float, hi: float) -> str:
    """Two bounds with one unit.

    >>> bounds("accuracy", 0.968, 0.977).replace(NO_BREAK, " "), bounds("ece", math.nan, math.nan)
    ('96.8 to 97.7 %', 'no bounds')
    >>> bounds("time_between_failures", 6.5, math.inf)
    'at least 6.5'
    """
    unbounded = math.isinf(hi) or words_of(metric).infinite != "infinite"  # stored as null where it is infinite
    if math.isfinite(lo) and unbounded and not math.isfinite(hi):
        return f"at least {number(metric, lo)}"
    if math.isnan(lo) or math.isnan(hi):
        return "no bounds"
    return f"{short_number(metric, lo)} to {number(metric, hi)}"


def signed(value: float) -> str:
    """A change or a difference, with its sign.

    >>> signed(0.0123), signed(-0.2), signed(0.0), signed(math.nan)
    ('+0.0123', '−0.2000', '0', 'n/a')
    """
    if not math.isfinite(value):
        return MISSING
    return f"{'+' if value > 0 else ''}{_decimal(value, 4)}"


def p_value(p: float) -> str:
    """A p value as `p_text` writes it, on one line.

    >>> p_value(0.04321), p_value(1e-9).replace(NO_BREAK, " "), p_value(math.nan)
    ('.043', '< .001', 'n/a')
    """
    return MISSING if math.isnan(p) else p_text(p).replace(" ", NO_BREAK)


def whole(count: float) -> str:
    """A count with commas between thousands.

    >>> whole(12330)
    '12,330'
    """
    return f"{int(count):,}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "image"), plural(6315, "class"), plural(0, "image")
    ('1 image', '6,315 classes', '0 images')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{whole(count)} {noun}{ending}"


def listing(items: Sequence[str]) -> str:
    """Items as a person lists them.

    >>> listing(["fog", "rain", "snow"]), listing(["fog"])
    ('fog, rain and snow', 'fog')
    """
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def _decimal(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    smallest = 10.0**-digits
    if 0 < abs(value) < smallest / 2:
        return f"{'<' if value > 0 else '>−'}{smallest:.{digits}f}"
    return f"{value:.{digits}f}".replace("-", "−")


def _share(value: float) -> str:
    if value in (0.0, 1.0):
        return f"{100 * value:.0f}"
    if 0.9995 <= value < 1:
        return ">99.9"
    if 0 < value < 0.0005:
        return "<0.1"
    return _decimal(100 * value, 1)
