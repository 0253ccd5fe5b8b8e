"""Classification under shifts: does the classifier still answer right, and does it know when it does not?

Every image is shown undisturbed and under each shift at each level. Per case: accuracy, AUROC of correct against
incorrect answers, Brier, ECE, NLL, confidence, per-class recall; each with an interval that counts independent objects,
and the drop against undisturbed data on the same images (paired).
"""

from __future__ import annotations

from roadworthy.protocols.classification.plan import Classification

__all__ = ["Classification"]
