"""Monitors that learn a linear SVM on their representation, and ScoreSVM, the one on logits."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.threshold import Aim, LinearSvm, fit_svm

NOT_CONVERGED = "the linear SVM did not converge: its scores are not those of the best one"
SOLVED_EXACTLY = (
    "the SVM is solved exactly, where the published code trains it by gradient descent; the exact threshold cuts its "
    "score anew, where the paper keeps the boundary of the SVM; without outliers, where the paper has no score, it is"
)


@dataclass(frozen=True, kw_only=True)
class SvmMonitor(Monitor):
    """Against outliers, the score is the decision value of a linear SVM; without any, that of `unsupervised`.

    With `threshold="hinge"` the SVM's own boundary, 0, is the threshold, as published; `exact` cuts its score again.
    """

    @abstractmethod
    def unsupervised(self, rows: Rep) -> NDArray[Any]:
        """Scores (N,) where there are no outliers to learn from."""

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """The SVM, fitted against the outliers; empty where there are none."""
        if outside is None:
            return {}
        svm = fit_svm(inside, outside, prior=aim.prior, cost=aim.cost)
        return {field.name: np.asarray(getattr(svm, field.name)) for field in fields(svm)}

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> NDArray[Any]:
        """The decision value of the SVM, or `unsupervised`."""
        return LinearSvm(**rule)(rows) if rule else self.unsupervised(rows)  # type: ignore[arg-type]

    def cut(self, inside: Floats, outside: Floats | None, aim: Aim) -> float:
        """The SVM's own boundary where the published fit is asked for."""
        return 0.0 if outside is not None and aim.threshold == "hinge" else super().cut(inside, outside, aim)

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note where the solver of the SVM did not converge."""
        return (NOT_CONVERGED,) if rule and not rule["converged"] else ()


@registered(MONITORS, "score_svm")
class ScoreSvm(SvmMonitor):
    """ScoreSVM: a linear SVM on the logits. Without outliers the score is the largest logit."""

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    differs_from_paper: ClassVar[str] = f"{SOLVED_EXACTLY} the largest logit"

    def read(self, signals: Signals, state: Learned) -> NDArray[np.float32]:
        """Logits (N, K)."""
        return signals.logits

    def unsupervised(self, rows: Rep) -> NDArray[Any]:
        """The largest logit."""
        return np.asarray(rows.max(axis=1))
