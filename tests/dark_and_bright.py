"""Images that are dark or bright, a study of them, and the code of a model that tells them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CLASSES, SIDE, IMAGES = 2, 8, 6
NAMES = ["dark", "bright"]
CODE = '''
import numpy as np

def answer(images):
    """Bright or dark, by the mean of the image."""
    light = np.asarray(images, np.float64).reshape(len(images), -1).mean(axis=1) / 255
    return np.stack([1 - light, light], axis=1).astype(np.float32)
'''


def draw(folder: Path, images: int = IMAGES, seed: int = 0) -> Path:
    """A few noisy images, dark and bright in turn."""
    labels = np.arange(images) % CLASSES
    noise = np.random.default_rng(seed).integers(0, 60, (images, SIDE, SIDE, 3))
    pixels = np.minimum(labels[:, None, None, None] * 120 + noise, 255).astype(np.uint8)
    np.savez(folder / "data.npz", images=pixels, labels=labels, class_names=NAMES)
    return folder / "data.npz"


def study(data: Path, models: dict[str, Any], /, **changes: Any) -> dict[str, Any]:
    protocols = {"classification": {"shifts": ["noise", "fog"], "levels": [3]}}
    return {"name": "s", "data": {"test": str(data)}, "models": models, "batch": 2, "protocols": protocols, **changes}
