"""The answers of several passes or members as one, and how much they agree: pure functions of samples (S, N, K)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Prediction, log_odds
from roadworthy.models.boxes import mixed_boxes

Samples = NDArray[np.floating[Any]]


def mixture(answers: Sequence[Prediction]) -> Prediction:
    """The answers of S passes or members to the same images as one, each with the same weight.

    Classes: the mean of the probabilities, the answers as `samples` (S, N, K), the largest mean probability as
    `certainty`, and where all give logits its `log_odds`. Boxes: their mean and their variance per coordinate (see
    `mixed_boxes`).

    >>> first, second = (Prediction(boxes=np.float32([[0, 0, side, side]])) for side in (4, 8))
    >>> answer = mixture([first, second])
    >>> answer.boxes.tolist(), answer.box_variance.tolist()
    ([[0.0, 0.0, 6.0, 6.0]], [[0.0, 0.0, 4.0, 4.0]])
    """
    columns: dict[str, Any] = {}
    known = answers[0].columns
    if "probabilities" in known:
        samples = np.stack([answer.probabilities for answer in answers])
        mean = mean_prediction(samples)
        columns |= {"probabilities": mean, "samples": samples, "certainty": mean.max(axis=1)}
        logits = [answer.logits for answer in answers if answer.logits is not None]
        if len(logits) == len(answers):
            columns["log_odds"] = log_odds(mean_log_probabilities(logits), mean.argmax(axis=1))
    if "boxes" in known:
        given = [name for name in ("boxes", "box_variance") if name in known]
        boxes, *variance = (np.stack([answer.columns[name] for answer in answers]) for name in given)
        columns["boxes"], columns["box_variance"] = mixed_boxes(boxes, *variance)
    return Prediction(**columns)


def tasks_of(model: Model) -> list[str]:
    """What a model answers, by the names that its `facts` have: `classes`, `boxes`."""
    columns = {"classes": "probabilities", "boxes": "boxes"}
    return [task for task, column in columns.items() if column in model.capabilities]


def mean_prediction(samples: Samples) -> NDArray[np.float32]:
    """The mean of the passes, (N, K): p_nk = 1/S sum_s p_snk, summed in float64.

    >>> mean_prediction(np.array([[[1.0, 0.0]], [[0.5, 0.5]]])).tolist()
    [[0.75, 0.25]]
    """
    return np.asarray(_checked(samples).mean(axis=0), np.float32)


def mean_log_probabilities(logits: Sequence[NDArray[np.floating[Any]]]) -> NDArray[np.float64]:
    """The logarithm (N, K) of the mean of the probabilities of S passes, from the logits (N, K) of each, in float64.

        log 1/S sum_s exp(z_snk - log sum_j exp z_snj)

    >>> mean_log_probabilities([np.array([[0.0, 200.0]]), np.array([[0.0, 100.0]])]).round(4).tolist()
    [[-100.6931, 0.0]]
    """
    values = np.asarray(np.stack(logits), np.float64)
    values = values - values.max(axis=2, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=2, keepdims=True))
    top = values.max(axis=0)
    with np.errstate(divide="ignore"):  # a class that every pass rules out
        return np.asarray(top + np.log(np.exp(values - np.where(np.isneginf(top), 0.0, top)).mean(axis=0)))


def predictive_entropy(samples: Samples) -> NDArray[np.float64]:
    """Entropy (N,) of the mean prediction in nats: H_n = -sum_k p_nk log p_nk, with 0 log 0 = 0. From 0 to log K.

    All there is to be unsure of: noise in the image and ignorance of the model together.

    >>> bool(np.isclose(predictive_entropy(np.full((3, 1, 4), 0.25))[0], np.log(4)))
    True
    """
    return _entropy(_checked(samples).mean(axis=0))


def expected_entropy(samples: Samples) -> NDArray[np.float64]:
    """Mean entropy (N,) of the passes in nats: 1/S sum_s H(p_sn). The part of the entropy that all passes share.

    >>> expected_entropy(np.array([[[1.0, 0.0]], [[0.0, 1.0]]])).tolist()
    [0.0]
    """
    return np.asarray(_entropy(_checked(samples)).mean(axis=0), np.float64)


def mutual_information(samples: Samples) -> NDArray[np.float64]:
    """What the passes disagree on, (N,), in nats: I_n = H(mean of the passes) - mean of H(pass). From 0 to log K.

    The part of the entropy that is the model's ignorance. 0 where all passes are equal and where there is one; what
    rounding leaves below 0 is 0.

    >>> certain_but_opposed = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> bool(np.isclose(mutual_information(certain_but_opposed)[0], np.log(2)))
    True
    """
    gap = predictive_entropy(samples) - expected_entropy(samples)
    return np.asarray(np.maximum(gap, 0.0), np.float64)


def variation_ratio(samples: Samples) -> NDArray[np.float64]:
    """Share of the passes (N,) that do not vote for the commonest class: 1 - max_k votes_nk / S. From 0 to 1 - 1/K.

    A pass votes for its likeliest class, of equal ones the first.

    >>> variation_ratio(np.array([[[0.9, 0.1]], [[0.6, 0.4]], [[0.2, 0.8]], [[0.7, 0.3]]])).tolist()
    [0.25]
    """
    values = _checked(samples)
    votes = values.argmax(axis=2)[:, :, None] == np.arange(values.shape[2])
    return np.asarray(1.0 - votes.mean(axis=0).max(axis=1, initial=0.0), np.float64)


def _entropy(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logs).sum(axis=-1), np.float64)


def _checked(samples: Samples) -> NDArray[np.float64]:
    values = np.asarray(samples, np.float64)
    if values.ndim != 3 or 0 in (values.shape[0], values.shape[2]):
        raise InputError(f"samples must be (passes, images, classes) with at least one pass, not {values.shape}")
    if not np.isfinite(values).all() or values.min(initial=0.0) < 0:
        raise InputError("samples must be probabilities: they hold NaN, infinity or a negative number")
    return values
