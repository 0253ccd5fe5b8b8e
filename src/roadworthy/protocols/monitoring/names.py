"""Names that the tables of a monitor benchmark and its page in the report share: kinds, views, parts, columns."""

from __future__ import annotations

NAME = "monitoring"

NOVEL_CLASS, ADVERSARIAL, DISTRIBUTIONAL_SHIFT = "novel_class", "adversarial", "distributional_shift"
NOISE, ANOMALY = "noise", "anomaly"
KINDS = (NOVEL_CLASS, ADVERSARIAL, DISTRIBUTIONAL_SHIFT, NOISE, ANOMALY)
"""The kinds of images outside the distribution that a model meets at runtime."""

DETECTION, SYSTEM, SYSTEM_LABEL_LOST, MODEL_SCOPE = "detection", "system", "system_label_lost", "model_scope"
VIEWS = (DETECTION, SYSTEM, SYSTEM_LABEL_LOST, MODEL_SCOPE)
"""What counts as positive: an OOD image; a wrong answer; the same, and any answer to an image that lost its label."""

ID, OOD, STREAM = "id", "ood", "stream"
PARTS = (ID, OOD, STREAM)
"""The images of a benchmark that are counted: those inside, those outside, and all."""

TRAIN, VALID, TEST = "train", "valid", "test"
"""Data of the source: what models and monitors learned from, what thresholds come from, the ID side of benchmarks."""

OOD_SETS = "ood/"
"""Begins the label of the OOD side of a benchmark, which tells it from the data of the source."""

ALONE = "none"
"""In place of a monitor: the model by itself, whose every answer is accepted."""
GUARD, EXPORTED = FORMS = ("guard", "exported")
"""How a model runs with a monitor: as a guard in Python, or as one exported ONNX file that holds both."""
ALL = "all"
"""Stands for all benchmarks, kinds or models in the tables."""

ORDERS = ("random", "blocks", "gradual", "runs")
CONFORMAL = "conformal"
RULES = ("share", "smallest", CONFORMAL, "own")
KEPT, BROKEN, NO_PROMISE = "kept", "broken", "none"
"""What became of the promise of a threshold on ID test images; `none` where its rule promises nothing."""
EXCHANGEABILITY, REJECTION_RATE = "exchangeability", "rejection_rate"
TESTS = (EXCHANGEABILITY, REJECTION_RATE)
"""The tests that watch the assumption of a threshold while a stream goes on."""

CONDITIONS = ("model", "benchmark", "ood_kind", "monitor", "view", "part", "form")
"""What a criterion may ask for besides the source."""


def ood_set(benchmark: str) -> str:
    """The label of the OOD side of a benchmark.

    >>> ood_set("fog")
    'ood/fog'
    """
    return OOD_SETS + benchmark
