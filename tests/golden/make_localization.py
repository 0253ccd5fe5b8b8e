"""A run of protocol localization, made once by the code that first wrote such runs.

    python tests/golden/make_localization.py

It must open, verify, report and compare for good. The report is left out: it is large and made anew by the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from storing import HERE, MODEL, store

sys.path.insert(0, str(Path(__file__).parents[1]))

from found_squares import save_finder

FINDER, FORM = HERE / "finder.onnx", "centre relative variance"
STUDY: dict[str, Any] = {
    "name": "golden-localization",
    "size": 32,
    "data": {"test": {"builtin": "signs", "n": 140}},
    "models": {
        "both": {"joint": {"classes": {"onnx": str(MODEL)}, "boxes": {"onnx": str(FINDER), "boxes": FORM}}},
        "sure": {"onnx": str(FINDER), "boxes": FORM},
    },
    "outliers": {"cones": {"builtin": "traffic_ood", "n": 20}},
    "protocols": {
        "localization": {
            "sets": {
                "fog": {"shift": "fog_veil", "parameters": {"visual_range": 100.0, "distance": 30.0}},
                "turned": {"shift": "rotation", "level": 5},
                "cones": {"outliers": "cones", "labels": False},
            },
            "views": {"stop_and_yield": {"only": ["stop", "yield"]}},
            "resamples": 100,
            "timed_images": 3,
        },
    },
    "criteria": [
        {"id": "L-1", "metric": "iou", "where": {"protocol": "localization", "set": "fog"}, "at_least": 0.05},
        {"id": "L-2", "metric": "accuracy_drop", "where": {"protocol": "localization", "set": "fog"}, "at_most": 0.5},
    ],
}

if __name__ == "__main__":
    save_finder(FINDER)
    store(STUDY, "localization", accept_chance=True)
