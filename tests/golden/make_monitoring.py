"""A run of protocol monitoring, made once by the code that first wrote such runs.

    python tests/golden/make_monitoring.py

It must open, verify, report and compare for good. The report is left out: it is large and made anew by the tests.
"""

from __future__ import annotations

from typing import Any

from storing import MODEL, store

STUDY: dict[str, Any] = {
    "name": "golden-monitoring",
    "size": 32,
    "data": {"test": {"builtin": "signs", "n": 140}, "train": {"builtin": "signs", "split": "train", "n": 70}},
    "models": {"net": {"onnx": str(MODEL)}},
    "outliers": {"scenery": {"builtin": "scenery", "n": 60}},
    "monitors": {
        "energy": {},
        "boxes": {"clusters": 1},
        "either": {"monitor": "combined", "of": ["energy", "boxes"], "last": 2, "at_least": 1},
        "flicker": {"monitor": "assertion", "predicate": "flicker"},
    },
    "protocols": {
        "monitoring": {
            "benchmarks": {
                "scenery": {"kind": "novel_class", "outliers": "scenery"},
                "attack": {"kind": "adversarial", "shift": "square", "level": 2},
                "fog": {"kind": "distributional_shift", "shift": "fog", "level": 4},
                "faults": {"kind": "noise", "shift": "sensor_pixel_faults", "level": 3},
                "black": {"kind": "anomaly", "shift": "sensor_black_frame", "level": 5},
            },
            "order": "blocks",
            "block": 10,
            "threshold": {"rule": "conformal", "rejected": 0.1, "confidence": 0.9},
            "resamples": 100,
            "timed_images": 3,
        },
    },
    "criteria": [
        {"id": "M-1", "metric": "recall", "where": {"protocol": "monitoring", "monitor": "energy"}, "at_least": 0.1},
        {"id": "M-2", "metric": "rejected", "where": {"protocol": "monitoring", "monitor": "energy"}, "at_most": 0.5},
    ],
}

if __name__ == "__main__":
    store(STUDY, "monitoring")
