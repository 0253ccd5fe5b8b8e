"""Every metric as one of MAITE under its own name; written by `python tests/written_code.py`."""

from roadworthy.maite.metric import SingleBoxMetric, SingleMetric


class Ece(SingleMetric):
    """Expected calibration error: the gap between confidence and accuracy in ten bins of confidence, averaged by how
    many answers fall in each. 0 is perfect."""

    metric = "ece"


class MeanConfidence(SingleMetric):
    """Average of the largest class probability."""

    metric = "mean_confidence"


class Overconfidence(SingleMetric):
    """The part of ECE from bins that promise more than they keep."""

    metric = "overconfidence"


class Underconfidence(SingleMetric):
    """The part of ECE from bins that keep more than they promise."""

    metric = "underconfidence"


class Accuracy(SingleMetric):
    """Share of images whose predicted class is the true one."""

    metric = "accuracy"


class Auroc(SingleMetric):
    """Does confidence tell right from wrong answers? The chance that a correct answer (the positive class) has a
    higher confidence than an incorrect one; ties count half. 1 is perfect, 0.5 is no better than guessing. It
    does not exist where all answers are correct or all are wrong."""

    metric = "auroc"


class Fpr95Right(SingleMetric):
    """Share of wrong answers still accepted by the strictest threshold on confidence that accepts at least 95 % of
    the right answers (the positive class); answers of equal confidence fall on one side. 0 is perfect. It does
    not exist where all answers are right or all are wrong."""

    metric = "fpr95_right"


class Fpr95Wrong(SingleMetric):
    """Share of right answers rejected by the mildest threshold on confidence that rejects at least 95 % of the wrong
    answers (the positive class); answers of equal confidence fall on one side. 0 is perfect. It does not exist
    where all answers are right or all are wrong."""

    metric = "fpr95_wrong"


class Brier(SingleMetric):
    """Squared error of the probabilities, summed over classes, averaged over images. 0 is perfect, 2 worst."""

    metric = "brier"


class BrierMean(SingleMetric):
    """The Brier score divided by the number of classes."""

    metric = "brier_mean"


class Nll(SingleMetric):
    """Negative log-likelihood of the true class in nats: punishes confident mistakes hardest. 0 is perfect."""

    metric = "nll"


class Iou(SingleBoxMetric):
    """Intersection over union of the predicted box and the true one, averaged over images. 1 is perfect, 0 is no
    overlap; a box without area counts 0."""

    metric = "iou"


class Mae(SingleBoxMetric):
    """Mean absolute error of the four coordinates of a box, in pixels of the tested images. 0 is perfect."""

    metric = "mae"


class Diou(SingleBoxMetric):
    """IoU less the squared distance of the centres, as a share of the squared diagonal of the smallest box around
    both. 1 is perfect; it falls below 0 where boxes do not meet."""

    metric = "diou"


class IouAt50(SingleBoxMetric):
    """Share of images whose predicted box has an IoU of at least 0.5 with the true one."""

    metric = "iou_at_50"
