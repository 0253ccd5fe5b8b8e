"""The fixed numbers that metrics and statistics are asked about. Truths were computed for exactly these."""

from __future__ import annotations

PROBABILITIES = (
    (0.92, 0.05, 0.03),
    (0.71, 0.18, 0.11),
    (0.43, 0.31, 0.26),
    (0.21, 0.52, 0.27),
    (0.09, 0.83, 0.08),
    (0.24, 0.29, 0.47),
    (0.04, 0.13, 0.83),
    (0.62, 0.27, 0.11),
    (1.0, 0.0, 0.0),
    (0.36, 0.33, 0.31),
    (0.15, 0.14, 0.71),
    (0.06, 0.88, 0.06),
)
"""Of 12 images and 3 classes; one is certain, three confidences come twice."""
LABELS = (0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 1, 1)
WEIGHTS = (1, 2, 0, 1, 3, 1, 1, 2, 1, 0, 1, 1)
"""How often each image counts."""

SCORES = (0.91, 0.85, 0.85, 0.74, 0.66, 0.61, 0.52, 0.52, 0.33, 0.28, 0.11, 0.04)
INSIDE = (1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 0)
"""Scores of 12 images, and which of these are in-distribution: the positive class, which should score high."""

SHOULD_REJECT = (1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0)
REJECTED = (1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0)
"""What a monitor should do about 14 images, and does: rejecting is the positive class."""
MONITORED_LABELS = (0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1)
MONITORED_ANSWERS = (0, 2, 2, 1, 1, 2, 0, 0, 2, 0, 1, 1, 0, 1)

TRUE_BOXES = ((0, 0, 10, 10), (2, 2, 8, 10), (5, 5, 15, 25), (0, 0, 4, 4), (10, 0, 20, 8))
BOXES = ((1, 0, 11, 10), (2, 3, 8, 11), (5, 5, 15, 25), (6, 6, 9, 9), (12, 1, 20, 9))
BOX_VARIANCE = ((1, 1, 1, 1), (0.25, 1, 0.25, 1), (0.5, 0.5, 2, 2), (4, 4, 9, 9), (2, 1, 1, 0.001))
BOX_WEIGHTS = (1, 2, 1, 0, 1)

STREAM_OOD = (0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1)
STREAM_REJECTED = (0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1)
FRAME_RATE = 10.0

SECONDS = (0.004, 0.006, 0.005, 0.009, 0.004, 0.013, 0.005, 0.006, 0.005, 0.02, 0.007)
SECONDS_ALONE = (0.003, 0.003, 0.004, 0.003, 0.003, 0.004, 0.003, 0.005, 0.004, 0.004, 0.003)
"""The time of 11 images with a monitor, and without it in the same turns."""

CONDITIONS = {
    "weather": ("sunny", "cloudy", "rainy"),
    "surface": ("stone", "mud", "tarmac"),
    "road": ("straight", "curvy"),
}
SEEN = {
    "weather": ("sunny", "rainy", "sunny", "cloudy"),
    "surface": ("stone", "tarmac", "mud", "stone"),
    "road": ("straight", "curvy", "straight", "straight"),
}
ACTIVATIONS = ((1, 0, 0, 2), (0, 0, 3, 1), (0, 0, 0, 0), (4, 0, 1, 1), (1, 0, 2, 2))
"""Of a layer of 4 neurons, for 5 images: one neuron is never on."""

HEAT_MAPS = (((0.2, 0.9), (0.4, 0.5)), ((0.1, 0.3), (0.3, 0.8)))
OCCLUDING = (((True, True), (False, False)), ((True, False), (True, False)))
"""The probability that is left where a cell is hidden, and the cells that hide the object."""
RHO = 0.5

DISTURBED = ((0.85, 0.70, 0.40), (0.80, 0.75, 0.10), (0.69, 0.90, 0.35))
UNDISTURBED = (0.91, 0.80, 0.30)
"""The probability of the true class of 3 images, under 3 transformers and undisturbed."""
SEVERITIES = ((0.0, 4.0, 1.0), (2.0, 0.0, 1.0), (3.0, 1.0, 0.0))

POSITIONS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 2.0, 3.0)
FAILED = (0, 1, 1, 0, 1, 0, 0, 0, 1, 0)
DRIVES = ("a",) * 6 + ("b",) * 4

GROUPS = ("a", "a", "b", "c", "c", "c", "d", "e", "f", "f", "g", "h")
"""The objects of 12 images."""
RIGHT_A = (1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1)
RIGHT_B = (0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0)
"""Which of 12 images two models answer right."""
P_VALUES = (0.01, 0.04, 0.03, 0.005, 0.2)

FACTOR_MODEL = ("a", "a", "b", "b") * 4
FACTOR_SHIFT = ("x", "y", "x", "y") * 4
FACTOR_REPEAT = tuple(str(row // 4) for row in range(16))
RESPONSE = (1.0, 3.0, 2.0, 6.0, 2.0, 4.5, 3.0, 6.5, 1.5, 3.5, 2.0, 7.0, 2.5, 4.0, 3.5, 5.5)
"""A balanced design of two factors in four repeats."""

RANKED = (
    (0.9, 0.5, 0.1),
    (0.8, 0.4, 0.2),
    (0.7, 0.6, 0.3),
    (0.6, 0.65, 0.1),
    (0.9, 0.7, 0.75),
    (0.55, 0.5, 0.35),
)
"""Three methods on six sets."""
METHODS = ("boxes", "energy", "odin")
