"""Out-of-distribution evaluation: is the classifier less sure of what it cannot know?

In-distribution images (the positive class, everywhere) are mixed with outliers; the score is the model's own
certainty where it offers one, else its largest probability. Sets of rising difficulty: noise and foreign images,
images derived from the test data, foreign images where both sides are disturbed by the same shift, and images that GANs
were trained to draw.
"""

from __future__ import annotations

from roadworthy.protocols.ood.plan import OutOfDistribution

__all__ = ["OutOfDistribution"]
