"""A run of schema 2 with every protocol of its time, made once by the code that first wrote that schema.

    python tests/golden/make_schema2.py

It must open, verify, report and compare for good. The report is left out: it is large and made anew by the tests.
"""

from __future__ import annotations

from typing import Any

from storing import MODEL, store

STUDY: dict[str, Any] = {
    "name": "golden-schema-2",
    "size": 32,
    "data": {"test": {"builtin": "signs", "n": 98}, "train": {"builtin": "signs", "split": "train", "n": 70}},
    "models": {"net": {"onnx": str(MODEL)}},
    "outliers": {"scenery": {"builtin": "scenery", "n": 40}},
    "monitors": {"energy": {}, "knn2": {"monitor": "deep_knn", "k": 2}},
    "protocols": {
        "classification": {"shifts": ["fog", "noise"], "levels": [1, 5], "repeats": 2},
        "ood": {"sets": ["uniform_noise", "scenery", "swirl"], "transformed": ["fog"], "levels": [5], "repeats": 2},
        "od_test": {"limit": 28, "resamples": 100},
        "dependability": {
            "k": 1,
            "transformers": [{"name": "rotation", "level": 3}],
            "loss_images": 14,
            "metrics": ["accuracy"],
            "slices": {"depth": 1, "support": 5},
            "occlusion": {"patch": 8, "stride": 8, "images": 14},
            "severity": "traffic_signs",
        },
    },
    "criteria": [
        {"id": "S-1", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.3},
        {"id": "S-2", "metric": "auroc", "where": {"protocol": "ood", "ood_set": "scenery"}, "at_least": 0.3},
        {"id": "S-3", "metric": "accuracy", "where": {"protocol": "od_test"}, "over": "pooled", "at_least": 0.2},
        {"id": "S-4", "metric": "weighted_confusion", "where": {"protocol": "dependability"}, "at_most": 0.9},
    ],
}

if __name__ == "__main__":
    store(STUDY, "schema2")
