"""Error detection: does confidence tell right from wrong answers?"""

from __future__ import annotations

from roadworthy.metrics.answers import Answers, tied_answers
from roadworthy.metrics.base import metric
from roadworthy.metrics.ranking import RankedPair, Ranking
from roadworthy.metrics.weighting import Floats, Weights


def _one_side_only(answers: Answers) -> str | None:
    if answers.correct.all():
        return "no incorrect prediction"
    return None if answers.correct.any() else "no correct prediction"


def _ranked(answers: Answers, weights: Weights) -> RankedPair:
    return answers.ranking.auroc_and_rate(weights)


@metric(
    label="AUROC",
    sentence="Does confidence tell right from wrong answers? The chance that a correct answer (the positive class) has "
    "a higher confidence than an incorrect one; ties count half. 1 is perfect, 0.5 is no better than guessing. It does "
    "not exist where all answers are correct or all are wrong.",
    higher_is_better=True,
    shares=_ranked,
    why_missing=_one_side_only,
    ranked=Ranking.area_by_image,
    ties=tied_answers,
)
def auroc(ranked: RankedPair) -> Floats:
    """AUROC of confidence, correct predictions (the positive class) against incorrect ones; ties count half.

    P(c_i > c_j) + 1/2 P(c_i = c_j) for i correct, j incorrect. Where log-odds are known, they stand for the confidence
    (`Answers.score`): the order is the same, but confidences that were rounded to 1 are told apart. Does not exist
    where there is no incorrect or no correct prediction: NaN, never 0.5 or 1.

    >>> auroc(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    1.0
    >>> everything_right = Answers.from_probabilities([[0.9, 0.1], [0.6, 0.4]], [0, 0])
    >>> auroc(everything_right), auroc.reason(everything_right)
    (nan, 'no incorrect prediction')
    """
    return ranked.auroc


@metric(
    label="FPR95-right: wrong answers accepted",
    sentence="Share of wrong answers still accepted by the strictest threshold on confidence that accepts at least "
    "95 % of the right answers (the positive class); answers of equal confidence fall on one side. 0 is perfect. It "
    "does not exist where all answers are right or all are wrong.",
    higher_is_better=False,
    percent=True,
    shares=_ranked,
    why_missing=_one_side_only,
    ranked=Ranking.rate_by_image,
    ties=tied_answers,
)
def fpr95_right(ranked: RankedPair) -> Floats:
    """Share of wrong answers accepted where 95 % of the right answers (the positive class) are, by their confidence.

    The threshold is the highest confidence at or above which at least 95 % of the right answers lie; answers of equal
    confidence are accepted together, and nothing is interpolated. NaN where no answer is wrong, or none is right.

    >>> fpr95_right(Answers.from_probabilities([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.05, 0.95]], [0, 0, 0, 0]))
    0.5
    """
    return ranked.false_positive_rate


@metric(
    label="FPR95-wrong: right answers rejected",
    sentence="Share of right answers rejected by the mildest threshold on confidence that rejects at least 95 % of the "
    "wrong answers (the positive class); answers of equal confidence fall on one side. 0 is perfect. It does not exist "
    "where all answers are right or all are wrong.",
    higher_is_better=False,
    percent=True,
    why_missing=_one_side_only,
    ranked=Ranking.reversed_rate_by_image,
    ties=tied_answers,
)
def fpr95_wrong(answers: Answers, weights: Weights) -> Floats:
    """Share of right answers rejected where 95 % of the wrong answers (the positive class) are, by their confidence.

    This is FPR95 of error detection: an error is what is to be detected. The threshold is the lowest confidence at or
    below which at least 95 % of the wrong answers lie; answers of equal confidence are rejected together, and nothing
    is interpolated. NaN where no answer is wrong, or none is right.

    >>> fpr95_wrong(Answers.from_probabilities([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.45, 0.55]], [0, 0, 0, 0]))
    0.5
    """
    return answers.ranking.reversed.false_positive_rate(weights)
