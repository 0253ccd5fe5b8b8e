"""What the paper says of each of its eight metrics: the RICC attributes, and how to improve it. Declared once.

Cheng, Nührenberg, Huang, Yasuoka: Towards Dependability Metrics for Neural Networks (2018), section II. The report
shows these words and docs/dependability.md has them.
"""

from __future__ import annotations

from dataclasses import dataclass

UNSAID = "the paper does not say"


@dataclass(frozen=True)
class PaperMetric:
    """One of the eight.

    section     of the paper;  attributes  those of RICC that it reflects, none where the paper does not say
    advice      how to improve it, after the paper; empty where it does not say
    """

    number: int
    title: str
    section: str
    attributes: tuple[str, ...]
    advice: str

    @property
    def reflects(self) -> str:
        """The attributes in words.

        >>> PAPER[0].reflects
        'completeness, correctness'
        """
        return ", ".join(self.attributes) or UNSAID

    @property
    def sentence(self) -> str:
        """What it reflects, and how to improve it.

        >>> PAPER[4].sentence
        'Reflects (RICC): the paper does not say. To improve it: the paper does not say.'
        """
        return f"Reflects (RICC): {self.reflects}. To improve it: {self.advice or UNSAID}."


PAPER = (
    PaperMetric(
        1,
        "scenario coverage",
        "A",
        ("completeness", "correctness"),
        "discover new scenarios, and collect first the image that fills most empty cells at once",
    ),
    PaperMetric(
        2,
        "neuron k-activation",
        "B",
        ("completeness", "correctness"),
        "provide inputs that enable other activation patterns of the layer",
    ),
    PaperMetric(
        3,
        "neuron activation pattern",
        "C",
        ("robustness", "completeness", "interpretability"),
        "examine carefully why activation patterns of one scenario differ",
    ),
    PaperMetric(
        4,
        "adversarial confidence loss",
        "D",
        ("robustness", "correctness"),
        "put perturbed images into the training set, or train with techniques that have provable bounds",
    ),
    PaperMetric(5, "scenario-based degradation", "E", (), ""),
    PaperMetric(
        6,
        "interpretation precision",
        "F",
        ("interpretability", "correctness"),
        "add images in which these objects appear in other surroundings, and test whether they are found there",
    ),
    PaperMetric(
        7,
        "occlusion sensitivity covering",
        "G",
        ("robustness", "interpretability"),
        "augment the training set with images in which these objects are only partly visible; where one part of a "
        "class is sensitive in many images, test with this part hidden",
    ),
    PaperMetric(
        8,
        "weighted confusion",
        "H",
        ("correctness",),
        "train with more examples, or align the loss function with the weights of confusions",
    ),
)
"""The eight in the order of the paper."""
