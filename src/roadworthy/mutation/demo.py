"""The study that `roadworthy mutate --demo` damages: drawn signs, and the classifier that comes with the package."""

from __future__ import annotations

from typing import Any

from roadworthy.demo import THRESHOLDS
from roadworthy.diagnosing import CLASSIFIER
from roadworthy.protocols.joint_test.templates import filled_template

IMAGES = 2800
"""Of 560 signs, five frames each: enough to tell a drop of 5 points from one of 2."""
AGAINST = "TS-10"
"""The criterion of the template against the undamaged model."""
LARGEST_DROP = 0.02
"""Its threshold: an example, like those of the demo."""
FOG = {"protocol": "classification", "shift": ["fog"], "level": [2]}
SHOWN = {"TS-1": {}, "TS-2": {"where": FOG}, "TS-6": {"where": FOG}, AGAINST: {}}
"""The criteria of the template that are judged here, and what of them is narrowed to what a short study shows."""


def demo_study() -> dict[str, Any]:
    """A study like any other: undisturbed signs and fog, judged by criteria of the template with example thresholds."""
    thresholds = {**THRESHOLDS, AGAINST: LARGEST_DROP}
    content = filled_template("traffic-signs", thresholds, baseline=True, example=True)
    criteria = [one | SHOWN[one["id"]] for one in content["criteria"] if one["id"] in SHOWN]
    return {
        "name": "demo",
        "size": 32,
        "data": {"test": {"builtin": "signs", "n": IMAGES}},
        "models": {"small_vgg": {"onnx": str(CLASSIFIER)}},
        "protocols": {"classification": {"shifts": FOG["shift"], "levels": FOG["level"]}},
        "criteria": {**content, "criteria": criteria},
    }
