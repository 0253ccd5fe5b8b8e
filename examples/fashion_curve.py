"""Train small networks on ever more FashionMNIST images: how accurate they are, and how many images 90 % would take.

    python examples/fashion_curve.py fashionmnist.npz runs/fashion-curve docs/images/fashion-curve.png

Accuracy is on 1,200 images that no training sees, always the same. Prints tables in markdown and draws the curve.
Trainings are kept in the folder: a second call goes on where the first was stopped. `--recipes` compares recipes too.
It takes 8 minutes of one core; 18 with `--recipes`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import roadworthy as rw
from roadworthy.data import OpenedDataset, Subset, rows_over_classes, split_by_group
from roadworthy.data.subset import Mirrored
from roadworthy.models import ReferenceModel
from roadworthy.models.training import HELD_OUT
from roadworthy.statistics.intervals import wilson

SIZES = (300, 600, 1200, 2400, 4800)
RECIPE: dict[str, Any] = {"spec": "vgg", "width": 16, "epochs": 20, "batch": 64, "schedule": "cosine"}
"""The recipe of the curve: of those of width 16, the one with the highest accuracy on held-out training images."""
LEAST_STEPS = 600
"""Few images are shown more often, so that every network makes at least so many steps."""
RECIPES: tuple[tuple[dict[str, Any], bool], ...] = (
    ({"spec": "vgg", "width": 16, "epochs": 12}, False),
    ({"spec": "vgg", "width": 16, "epochs": 20, "batch": 64}, True),
    (RECIPE, False),
    (RECIPE, True),
    (RECIPE | {"learning_rate": 0.002}, True),
    (RECIPE | {"width": 32, "epochs": 12}, True),
    (RECIPE | {"spec": "resnet", "epochs": 15, "learning_rate": 0.003}, True),
)
"""Settings of a reference network, and whether it learns from mirrored copies too."""
GOAL = 0.9
RESAMPLES = 2000


@dataclass(frozen=True)
class Outcome:
    """A trained network: which test images it answers rightly (M,), held-out accuracy, seconds of one core."""

    right: NDArray[np.bool_]
    held_out: float
    seconds: float

    @property
    def accuracy(self) -> float:
        """Share of the test images."""
        return float(self.right.mean())

    def cells(self) -> list[str]:
        """Accuracy with Wilson's bounds, held-out accuracy and seconds."""
        low, high = wilson(int(self.right.sum()), len(self.right))
        bounds = f"{100 * self.accuracy:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        return [bounds, f"{100 * self.held_out:.1f}", f"{self.seconds:.0f}"]


def trained(settings: Mapping[str, Any], train: OpenedDataset, test: OpenedDataset, folder: Path) -> Outcome:
    """Train a network on one thread and ask it about the test images; what the folder holds is not done again."""
    model = ReferenceModel(**settings, threads=1).on(train)
    home = folder / model.recipe.hash[:16]
    stored = home / "outcome.json"
    if not stored.exists():
        start = time.process_time()
        competence = model.build(home)
        seconds = time.process_time() - start
        model.load(home)
        answers = [model.predict(test.batch(slice(at, at + 200))).probabilities for at in range(0, len(test), 200)]
        right = np.concatenate([np.asarray(answer) for answer in answers]).argmax(axis=1) == test.labels
        figures = {"right": right.tolist(), "held_out": competence["clean_accuracy"], "seconds": seconds}
        stored.write_text(json.dumps(figures))
    figures = json.loads(stored.read_text())
    return Outcome(np.array(figures["right"]), figures["held_out"], figures["seconds"])


def first(train: OpenedDataset, images: int, mirrored: bool) -> OpenedDataset:
    """So many training images, as many of each class; a larger part holds the smaller ones. Copies come on top."""
    part = Subset(train, rows_over_classes(train.table, images, seed=0).tolist())
    return Mirrored(part) if mirrored else part


def epochs_for(images: int) -> int:
    """The epochs of the recipe, or as many as `LEAST_STEPS` take."""
    steps = math.ceil((1 - HELD_OUT) * images / RECIPE["batch"])
    return max(int(RECIPE["epochs"]), math.ceil(LEAST_STEPS / steps))


def power_law(sizes: NDArray[np.float64], wrong: NDArray[np.float64], images: int) -> tuple[float, float]:
    """a and b of error = a n^-b: least squares on the logarithms, weighted by the binomial variance of each error."""
    weights = np.sqrt(images * wrong / (1 - wrong))
    slope, level = np.polyfit(np.log(sizes), np.log(wrong), 1, w=weights)
    return float(np.exp(level)), float(-slope)


def needed(a: float, b: float) -> float:
    """How many training images the law asks for an accuracy of `GOAL`: (a / (1 - GOAL))^(1/b)."""
    return float((a / (1 - GOAL)) ** (1 / b))


def extrapolated(outcomes: Mapping[int, Outcome]) -> tuple[float, float, list[str]]:
    """a, b, and cells of the table: the law, b and the images needed with 95 % bounds.

    Test images are drawn anew, for all sizes together, as all networks answer the same ones. The bounds know nothing of
    how much a network varies from seed to seed, or of whether the law holds beyond the largest size.
    """
    sizes, right = np.array([*outcomes], float), np.stack([outcome.right for outcome in outcomes.values()])
    images = right.shape[1]
    a, b = power_law(sizes, 1 - right.mean(axis=1), images)
    rng = np.random.default_rng(0)
    drawn = [right[:, rng.integers(images, size=images)].mean(axis=1) for _ in range(RESAMPLES)]
    laws = [power_law(sizes, 1 - accuracy, images) for accuracy in drawn]
    low, high = np.quantile([law[1] for law in laws], (0.025, 0.975))
    least, most = np.quantile([needed(*law) for law in laws], (0.025, 0.975))
    bounds = f"{needed(a, b):,.0f} ({least:,.0f} to {most:,.0f})"
    return a, b, [f"{a:.2f} n^-{b:.2f}", f"{b:.2f} ({low:.2f} to {high:.2f})", bounds]


def markdown(rows: list[list[str]]) -> str:
    """Rows, the first of them the heading, as a table."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Picture:
    """Accuracy (%) over the number of training images, which is drawn as its logarithm; twice the size, then halved."""

    width, height, left, right, top, bottom = 1440, 920, 130, 40, 60, 110
    sizes, percent = (250.0, 12000.0), (70.0, 94.0)
    ink, faint = (40, 40, 40), (222, 222, 222)
    colours = ((31, 90, 160), (200, 90, 20))

    def __init__(self) -> None:
        self.image = Image.new("RGB", (self.width, self.height), "white")
        self.draw, self.font = ImageDraw.Draw(self.image), ImageFont.load_default(26)

    def at(self, images: float, accuracy: float) -> tuple[float, float]:
        """The pixel of a number of images and an accuracy (%)."""
        across = math.log(images / self.sizes[0]) / math.log(self.sizes[1] / self.sizes[0])
        up = (accuracy - self.percent[0]) / (self.percent[1] - self.percent[0])
        width, height = self.width - self.left - self.right, self.height - self.top - self.bottom
        return self.left + across * width, self.height - self.bottom - up * height

    def text(self, at: tuple[float, float], text: str, anchor: str, fill: tuple[int, int, int] | None = None) -> None:
        """A line of text; the anchor is Pillow's."""
        self.draw.text(at, text, font=self.font, anchor=anchor, fill=fill or self.ink)

    def axes(self) -> None:
        """Grid, labels and the goal."""
        for accuracy in range(int(self.percent[0]), int(self.percent[1]) + 1, 5):
            start, end = self.at(self.sizes[0], accuracy), self.at(self.sizes[1], accuracy)
            self.draw.line([start, end], fill=self.faint, width=2)
            self.text((start[0] - 14, start[1]), f"{accuracy} %", "rm")
        for images in (*SIZES, 9600):
            start, end = self.at(images, self.percent[0]), self.at(images, self.percent[1])
            self.draw.line([start, end], fill=self.faint, width=2)
            self.text((start[0], start[1] + 14), f"{images:,}", "mt")
        self.draw.line([self.at(self.sizes[0], 100 * GOAL), self.at(self.sizes[1], 100 * GOAL)], fill=self.ink, width=3)
        self.text((self.width / 2, self.height - 20), "training images (before copies), logarithmic", "mb")
        self.text((self.left, 14), "Accuracy on 1,200 test images; bars: 95 %; dashed: error = a n^-b", "lt")

    def curve(self, label: str, outcomes: Mapping[int, Outcome], law: tuple[float, float], number: int) -> None:
        """Points with Wilson's bounds, the law as a dashed line, and a line of the key."""
        colour, shift = self.colours[number], 1 + 0.03 * (2 * number - 1)
        for images, outcome in outcomes.items():
            low, high = wilson(int(outcome.right.sum()), len(outcome.right))
            x, y = self.at(images * shift, 100 * outcome.accuracy)
            self.draw.line([self.at(images * shift, 100 * low), self.at(images * shift, 100 * high)], colour, 4)
            self.draw.ellipse([x - 9, y - 9, x + 9, y + 9], fill=colour)
        steps = np.geomspace(*self.sizes, 121)
        line = [self.at(images, 100 * (1 - law[0] * images ** -law[1])) for images in steps]
        shown = [point for point in line if self.top <= point[1] <= self.height - self.bottom]
        for start, end in zip(shown[::2], shown[1::2], strict=False):
            self.draw.line([start, end], fill=colour, width=3)
        x, y = self.width - self.right - 420, self.height - self.bottom - 100 + 46 * number
        self.draw.ellipse([x - 9, y - 9, x + 9, y + 9], fill=colour)
        self.text((x + 26, y), label, "lm")

    def save(self, path: Path) -> None:
        """Half the size, few colours."""
        small = self.image.resize((self.width // 2, self.height // 2), Image.Resampling.LANCZOS)
        small.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="an .npz with 6,000 images and labels")
    parser.add_argument("folder", type=Path, help="where trainings are kept")
    parser.add_argument("picture", type=Path, help="the .png to draw")
    parser.add_argument("--recipes", action="store_true", help="compare recipes as well")
    asked = parser.parse_args()
    train, test = split_by_group(rw.open_dataset({"npz": str(asked.data)}), (0.8, 0.2), seed=0)
    figures = ["test accuracy (95 %)", "held-out accuracy", "seconds"]
    if asked.recipes:
        rows = [["recipe", "mirrored copies", *figures]]
        for settings, mirrored in RECIPES:
            outcome = trained(settings, first(train, len(train), mirrored), test, asked.folder)
            words = ", ".join(f"{name} {value}" for name, value in settings.items()).replace("spec ", "")
            rows.append([words, "yes" if mirrored else "no", *outcome.cells()])
        print(markdown(rows), "\n")
    rows, laws = [["training images", "mirrored copies", "epochs", *figures]], []
    picture = Picture()
    picture.axes()
    for number, mirrored in enumerate((False, True)):
        outcomes = {}
        for images in SIZES:
            settings = RECIPE | {"epochs": epochs_for(images * (1 + mirrored))}
            outcomes[images] = trained(settings, first(train, images, mirrored), test, asked.folder)
            setup = [f"{images:,}", "yes" if mirrored else "no", str(settings["epochs"])]
            rows.append([*setup, *outcomes[images].cells()])
        a, b, cells = extrapolated(outcomes)
        laws.append(["yes" if mirrored else "no", *cells])
        picture.curve("with mirrored copies" if mirrored else "without copies", outcomes, (a, b), number)
    print(markdown(rows), "\n")
    print(markdown([["mirrored copies", "error", "b (95 %)", f"images for {100 * GOAL:.0f} % (95 %)"], *laws]))
    picture.save(asked.picture)


if __name__ == "__main__":
    main()
