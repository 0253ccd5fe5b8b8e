"""Run with the Python of the server: a scikit-learn model of images in a file, and the settings of both models.

    python make_models.py FOLDER

FOLDER/train.npz holds images (N, 32, 32, 3) and labels; a folder per model is written beside it.
"""

import json
import sys
from pathlib import Path

import joblib
import numpy as np
from sklearn.linear_model import LogisticRegression

folder = Path(sys.argv[1])
train = np.load(folder / "train.npz")
pixels = train["images"].reshape(len(train["images"]), -1).astype(np.float32) / 255
classifier = LogisticRegression(C=0.01, max_iter=1000).fit(pixels, train["labels"])
np.savez(folder / "weights.npz", coefficients=classifier.coef_, intercept=classifier.intercept_)

SETTINGS = {
    "rows": {
        "implementation": "mlserver_sklearn.SKLearnModel",
        "versions": ["3"],
        "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, pixels.shape[1]]}],
        "parameters": {"uri": "./model.joblib", "version": "3"},
    },
    "images": {
        "implementation": "image_model.ImageModel",
        "inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [-1, 32, 32, 3]}],
        "parameters": {"uri": "../weights.npz", "version": "5"},
    },
}
for name, settings in SETTINGS.items():
    (folder / name).mkdir()
    (folder / name / "model-settings.json").write_text(json.dumps({"name": name, **settings}))
joblib.dump(classifier, folder / "rows" / "model.joblib")
