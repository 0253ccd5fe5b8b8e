"""Truths of monitors for the self-test: closed forms in double precision, and recorded bits where there are none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from known_truth import by, truth
from roadworthy.selftest import monitors as of_monitors


def recorded(kind: Any, tolerance: Callable[[str], float]) -> dict[str, Any]:
    """The bits of this machine, for the items of a kind that compare bits."""
    return {
        item.name: item.record() | {"origin": "recorded from Roadworthy itself", "tolerance": tolerance(item.name)}
        for item in kind.items()
        if item.summarise is not None
    }


@dataclass(frozen=True)
class Said:
    """What the network says of training images (F, Z, Y) and of those shown (f, z, p); W, b: its last layer."""

    F: Any
    Z: Any
    Y: Any
    f: Any
    z: Any
    W: Any
    b: Any

    @property
    def p(self) -> Any:
        powers = np.exp(self.z - self.z.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


def said() -> Said:
    model: Any = of_monitors.toy_model()

    def layers(images: Any) -> tuple[Any, Any]:
        hidden = np.maximum((images.reshape(len(images), -1) / 255 - 0.5) @ model.inner.T, 0)
        return hidden, hidden @ model.outer.T + model.offset

    train = of_monitors.data()[0].batch(slice(None))
    shown = np.concatenate([part.batch(slice(None)).images for part in of_monitors.shown()])
    return Said(*layers(train.images), train.labels, *layers(shown), model.outer, model.offset)


def log_sum(z: Any) -> Any:
    return np.array([max(row) + math.log(sum(math.exp(value - max(row)) for value in row)) for row in z])


def closed_forms() -> dict[str, Any]:
    """The score of each monitor, image by image, in double precision, and where the formula comes from."""
    from sklearn.covariance import EmpiricalCovariance
    from sklearn.neighbors import NearestNeighbors

    s = said()
    classes = range(4)
    means = np.array([s.F[k == s.Y].mean(axis=0) for k in classes])
    within = EmpiricalCovariance(assume_centered=True).fit(s.F - means[s.Y])
    overall = EmpiricalCovariance().fit(s.F)
    distances = np.array([within.mahalanobis(s.f - mean) for mean in means])
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (s.F, s.f)]
    nearest = NearestNeighbors(n_neighbors=10).fit(unit[0]).kneighbors(unit[1])[0][:, -1]
    answer = s.z.argmax(axis=1)
    right = s.Z.argmax(axis=1) == s.Y
    patterns = np.array([s.F[right & (k == s.Y)].mean(axis=0) for k in classes])
    origin = -np.linalg.pinv(s.W) @ s.b
    values, vectors = np.linalg.eigh((s.F - origin).T @ (s.F - origin))
    outside = vectors[:, np.argsort(-values)[of_monitors.SETTINGS["residual"]["dimensions"] :]]
    temperature = of_monitors.SETTINGS["temperature_msp"]["temperature"]
    warm = np.exp((s.z - s.z.max(axis=1, keepdims=True)) / temperature)
    boundary = [
        np.mean([abs(z[y] - z[c]) / np.linalg.norm(s.W[y] - s.W[c]) for c in classes if c != y])
        for z, y in zip(s.z, answer, strict=True)
    ]
    cosines = unit[1] @ unit[0].T
    guided = np.sort(cosines * log_sum(s.Z), axis=1)[:, -of_monitors.SETTINGS["nnguide"]["k"] :].mean(axis=1)
    ordered = np.sort(s.p, axis=1)
    agreement = (s.p**2).sum(axis=1)
    return {
        "msp": s.p.max(axis=1),
        "max_logit": s.z.max(axis=1),
        "energy": log_sum(s.z),
        "entropy": (s.p * np.log(s.p)).sum(axis=1),
        "margin": ordered[:, -1] - ordered[:, -2],
        "gen": -(s.p**0.1 * (1 - s.p) ** 0.1).sum(axis=1),
        "temperature_msp": (warm / warm.sum(axis=1, keepdims=True)).max(axis=1),
        "gradnorm": np.abs(s.p - 1 / 4).sum(axis=1) * np.abs(s.f).sum(axis=1),
        "doctor": -(1 - agreement) / agreement,
        "she": (s.f * patterns[answer]).sum(axis=1),
        "fdbd": np.array(boundary) / np.linalg.norm(s.f - s.F.mean(axis=0), axis=1),
        "mahalanobis": -distances.min(axis=0),
        "relative_mahalanobis": -(distances - overall.mahalanobis(s.f)).min(axis=0),
        "residual": -np.linalg.norm((s.f - origin) @ outside, axis=1),
        "nnguide": log_sum(s.z) * guided,
        "deep_knn": -nearest,
    }


def monitors() -> dict[str, Any]:
    learned = by("scikit-learn", "EmpiricalCovariance")
    origins = {
        "mahalanobis": learned,
        "relative_mahalanobis": learned,
        "deep_knn": by("scikit-learn", "NearestNeighbors"),
    }
    found = {
        name: truth({"scores": scores}, origins.get(name, "its formula, in double precision"), 1e-4)
        for name, scores in closed_forms().items()
    }
    brightness = np.concatenate(
        [part.batch(slice(None)).images.mean(axis=(1, 2, 3)) / 255 for part in of_monitors.shown()]
    )
    for name in of_monitors.FROM_FILES:
        found[name] = truth({"scores": brightness}, "the mean of the pixels", 1e-6)
    found["pytorch_ood"] = truth({"MaxSoftmax is msp": True}, "the monitor msp")
    return found | recorded(of_monitors, of_monitors.tolerance)
