"""A metric of answers: the recall of the class that is recognised worst."""

import numpy as np

from roadworthy.metrics import metric


@metric(label="Worst recall", higher_is_better=True, percent=True)
def worst_recall(answers, weights):
    """The lowest recall of any class that was shown: a good average cannot hide a sign that is never recognised.

    From answers of n images and weights (B, n), a row for each resample of the objects, to a value for each row (B,).
    """
    recalls = np.full((answers.num_classes, len(weights)), np.inf)
    for label in np.unique(answers.label):
        own = answers.label == label
        shown, right = weights[:, own].sum(axis=1), weights[:, own & answers.correct].sum(axis=1)
        np.divide(right, shown, out=recalls[label], where=shown > 0)
    return recalls.min(axis=0)
