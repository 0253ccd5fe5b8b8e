"""4. Adversarial confidence loss: what the worst of several shifts and attacks takes from the true class (equation 4).

    M_adv = 1/n sum_i ( min_t p_t,i - p_i )

p_i is the probability of the true class of image i, p_t,i the same after transformer t. The more that is lost, the more
negative: a larger value is better.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Metric
from roadworthy.metrics.confidence_loss import ConfidenceLoss, confidence_loss
from roadworthy.protocols.dependability.bounds import from_mean
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results, Row
from roadworthy.protocols.dependability.names import ALL
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import LOSS, TRANSFORMERS
from roadworthy.statistics.estimates import failed_estimate

CONFIDENCE_LOSS = Metric(
    "confidence_loss",
    label="Confidence loss",
    sentence="Mean change of the true class's probability under the worst of several shifts and attacks; "
    "0 is none lost.",
    higher_is_better=True,
    range=(-1.0, 1.0),
    mean_over_objects=True,
)
METRIC = CONFIDENCE_LOSS.name


class AdversarialConfidenceLoss(Measure):
    """The loss under the worst transformer, and under each alone; which of them hurts which image most."""

    metrics = (CONFIDENCE_LOSS,)
    tables = (LOSS, TRANSFORMERS)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All transformers together, and each alone."""
        return {METRIC: [ALL, *before.transformers]}

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """The worst of all has a value only where no transformer failed."""
        after = self._disturbed(data, results, model)
        if not after:
            results.missing.setdefault((model, METRIC), "no transformer was shown")
            return
        rows = np.array([data.row_of[name] for name in next(iter(after.values())).ids], dtype=np.int64)
        before, objects = data.readouts[model].answers.p_label[rows], data.objects[rows]
        loss = confidence_loss([given.answers.p_label for given in after.values()], before, list(after))
        if (model, METRIC) not in results.missing:
            results.add(model, ALL, METRIC, objects, from_mean(loss.per_image, objects, -1, 1, loss.reason))
        wins = loss.wins()
        for label, change in zip(loss.transformers, loss.change, strict=True):
            results.add(model, label, METRIC, objects, from_mean(change, objects, -1, 1, loss.reason))
            results.rows[TRANSFORMERS].append(
                {
                    "model": model,
                    "transformer": label,
                    "mean_change": float(change.mean()),
                    "wins": wins[label],
                    "accuracy": float(after[label].answers.correct.mean()),
                    "n": len(rows),
                    "reason": "",
                }
            )
        results.rows[LOSS] += [{"model": model, **row} for row in _image_rows(data, rows, before, loss)]

    def _disturbed(self, data: StoredData, results: Results, model: str) -> dict[str, Readouts]:
        """The answers under each transformer by its label, in order; those without any get a row with the reason."""
        after, reasons = dict[str, Readouts](), dict(data.context.models[model].refused)
        cases = {case.labels["transformer"]: case for case in data.cases_of("transformer", model)}
        for label, case in sorted(cases.items()):
            if case.failure:
                results.missing[model, METRIC] = reasons[label] = failed_estimate(case.failure).reason
            else:
                after[label] = case.load()
        for label, reason in reasons.items():
            row = {"model": model, "transformer": label, "wins": 0, "n": 0, "reason": reason}
            results.rows[TRANSFORMERS].append(row)
        return after


def _image_rows(
    data: StoredData, rows: NDArray[np.int64], before: NDArray[np.float64], loss: ConfidenceLoss
) -> Iterator[Row]:
    """The worst change of each image and the transformer behind it, the largest loss first."""
    for index in np.argsort(loss.per_image, kind="stable").tolist():
        yield {
            **data.identity(rows[index]),
            "undisturbed": float(before[index]),
            "worst": float(before[index] + loss.per_image[index]),
            "change": float(loss.per_image[index]),
            "transformer": loss.transformers[int(loss.winner[index])],
        }
