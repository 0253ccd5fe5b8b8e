"""An owner's side of an export: the images are answered in another process, by ONNX Runtime alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PREDICTOR = '''
"""An owner's own script: no roadworthy in here."""
import csv, json, sys
import numpy as np, onnxruntime as ort
from PIL import Image
folder, model, out = sys.argv[1:]
settings = json.load(open(f"{folder}/export.json"))
options = ort.SessionOptions()
options.intra_op_num_threads = settings["threads"]
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
rows = list(csv.DictReader(open(f"{folder}/manifest.csv", newline="")))
names = open(f"{folder}/classes.txt").read().splitlines()
with open(out, "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["stimulus", "id", *names])
    for start in range(0, len(rows), settings["batch"]):
        part = rows[start:start + settings["batch"]]
        images = [np.asarray(Image.open(f"{folder}/{row['path']}")) for row in part]
        images += [images[-1]] * (settings["batch"] - len(images))
        batch = np.stack(images).transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
        answers = session.run(None, {"image": batch})[0]
        for row, answer in zip(part, answers):
            writer.writerow([row["stimulus"], row["id"], *(f"{p:.9g}" for p in answer)])
assert "roadworthy" not in sys.modules
'''


def answer_elsewhere(images: Path, model: Path, answers: Path) -> None:
    """Let an ONNX model answer the images of an export into a CSV file."""
    command = [sys.executable, "-c", PREDICTOR, str(images), str(model), str(answers)]
    subprocess.run(command, check=True)
