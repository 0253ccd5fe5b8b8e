"""Runs of schema 1 of every protocol beside classification, made once by the code that wrote that schema.

    python tests/golden/make_schema1.py

They must open, verify, report and compare for good; a run of the same study today must give the same tables. The
reports are left out: they are large and made anew by the tests.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import roadworthy as rw

HERE = Path(__file__).parent
MODEL = Path(rw.__file__).parent / "demo_classifier.onnx"

OOD: dict[str, Any] = {
    "name": "golden-ood",
    "size": 32,
    "data": {"test": {"builtin": "signs", "n": 98}, "ood": {"scenery": {"builtin": "scenery", "n": 60}}},
    "models": {"net": {"onnx": str(MODEL)}},
    "protocols": {
        "ood": {"sets": ["uniform_noise", "scenery", "swirl"], "transformed": ["fog"], "levels": [5], "repeats": 2}
    },
    "criteria": [
        {
            "id": "O-1",
            "metric": "auroc",
            "where": {"protocol": "ood", "ood_set": ["scenery", "swirl"]},
            "at_least": 0.4,
        }
    ],
}
DEPENDABILITY: dict[str, Any] = {
    "name": "golden-dependability",
    "size": 32,
    "data": {"test": {"builtin": "signs", "n": 98}},
    "models": {"net": {"onnx": str(MODEL)}},
    "protocols": {
        "dependability": {
            "k": 1,
            "transformers": [{"name": "rotation", "level": 3}, {"name": "blur", "level": 3}],
            "loss_images": 42,
            "metrics": ["accuracy"],
            "slices": {"depth": 1, "support": 5},
            "occlusion": {"patch": 8, "stride": 8, "images": 14},
            "severity": "traffic_signs",
        }
    },
    "criteria": [
        {
            "id": "D-1",
            "metric": "interpretation_precision",
            "where": {"protocol": "dependability", "scope": "all"},
            "at_least": 0.2,
        }
    ],
}
OD_TEST: dict[str, Any] = {
    "name": "golden-od-test",
    "protocols": {
        "od_test": {
            "limit": 40,
            "resamples": 200,
            "sources": {
                "signs": {
                    "model": {"onnx": str(MODEL)},
                    "train": {"builtin": "signs", "split": "train", "n": 140},
                    "data": {"builtin": "signs", "n": 140},
                    "size": 32,
                    "near": ["scenery"],
                }
            },
            "outliers": {
                "scenery": {"builtin": "scenery", "n": 40},
                "uniform_noise": "uniform_noise",
                "normal_noise": "normal_noise",
            },
            "monitors": [
                "msp",
                "energy",
                "max_logit",
                "kl_matching",
                "score_svm",
                {"name": "knn_svm", "parameters": {"k": 2}},
                "openmax",
                "mahalanobis",
                "deep_knn",
                "vim",
                "react",
                "random",
            ],
        }
    },
    "criteria": [
        {
            "id": "T-1",
            "metric": "accuracy",
            "where": {"monitor": "energy", "test_set": "scenery"},
            "over": "pooled",
            "at_least": 0.3,
        }
    ],
}
STUDIES = {"ood": OOD, "dependability": DEPENDABILITY, "od_test": OD_TEST}


def main() -> None:
    for name, study in STUDIES.items():
        home = HERE / "schema1" / name
        shutil.rmtree(home, ignore_errors=True)
        run = rw.run_study(study, out=home)
        for left_out in ("report.html", ".lock"):
            (run.path / left_out).unlink()
        run.folder.write_record(run.record)


if __name__ == "__main__":
    main()
