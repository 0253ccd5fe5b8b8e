"""Train one GAN of each configuration of the thesis on the built-in signs: what stopped each, and its learning curve.

    python examples/gan_curves.py runs/gan-curves docs/images/gan-curves.png

3,000 signs of 32x32 and the preset `small`, as in studies/heindrich-small.yaml; Lee's configurations also with a
surrogate that is trained jointly. Prints a table in markdown. The picture shows each training by its looks.
Trainings are kept in the folder: a second call goes on where the first was stopped. About five minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

import roadworthy as rw
from roadworthy.outliers.gan import CONFIGURATIONS, PRESETS, Configuration, Gan

SETTINGS = replace(PRESETS["small"], threads=1)
"""One thread: several trainings can share a machine."""
PANEL, MARGIN, GAP = (300, 290), 46, 12
LOSS_TOP, LOSS_HEIGHT, SHARE_TOP, SHARE_HEIGHT = 24, 120, 168, 84
LOWEST, HIGHEST = -4.0, 0.7
"""Of the classifier loss, as powers of ten."""
INK, GREY, BLUE, ORANGE = (40, 40, 40), (190, 190, 190), (0, 114, 178), (213, 94, 0)
COLUMNS = (
    *("GAN", "stopped by", "at step (epochs)", "at its floor from step", "right on real images", "classifier loss"),
    *("right on drawn images", "kept step (right on drawn)"),
)
Colour = tuple[int, int, int]
Look = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """One training: its competence and its looks."""

    configuration: Configuration
    competence: dict[str, Any]
    looks: Sequence[Look]

    @property
    def name(self) -> str:
        """Its configuration, and whether its surrogate was trained jointly."""
        return f"{self.configuration.name}{', joint' if self.configuration.surrogate == 'joint' else ''}"

    def cells(self) -> list[str]:
        """A row of the table."""
        last, kept = self.looks[-1], self.competence
        since = kept["competent_step"]
        return [
            f"`{self.name}`",
            kept["stopped_by"].replace("_", " "),
            f"{last['step']} ({last['epochs']:.2f})",
            "never" if since is None else str(since),
            f"{100 * last['surrogate_accuracy']:.0f} %",
            f"{last['classifier_loss']:.4f}",
            f"{100 * last['accuracy']:.0f} %",
            f"{kept['kept_step']} ({100 * kept['accuracy_on_generated']:.0f} %)",
        ]


def trained(configuration: Configuration, data: Any, folder: Path, seed: int) -> Trained:
    """Train a GAN until its rule stops it."""
    home = folder / f"{configuration.name}-{configuration.surrogate}-{seed}"
    competence = Gan(configuration, SETTINGS, data, seed=seed).build(home)
    looks: list[Look] = json.loads((home / "training.json").read_text(encoding="utf-8"))["looks"]
    return Trained(configuration, competence, looks)


def draw(trainings: Sequence[Trained], columns: int = 4) -> Image.Image:
    """A panel per training: the classifier loss above, the surrogate's accuracies below, by epoch."""
    rows = math.ceil(len(trainings) / columns)
    picture = Image.new("RGB", (columns * PANEL[0] + GAP, rows * PANEL[1] + GAP), (255, 255, 255))
    for index, training in enumerate(trainings):
        corner = (index % columns) * PANEL[0], (index // columns) * PANEL[1]
        draw_panel(ImageDraw.Draw(picture), training, *corner)
    return picture


def draw_panel(pen: ImageDraw.ImageDraw, training: Trained, left: int, top: int) -> None:
    """One training; a vertical line where it was stopped, a dotted one for the threshold, a thin one for the floor."""
    font = ImageFont.load_default(11)
    how, looks = training.configuration, training.looks
    longest = max(float(look["epochs"]) for look in looks)
    right = left + PANEL[0] - GAP

    def x(look: Look) -> float:
        return left + MARGIN + (right - left - MARGIN) * float(look["epochs"]) / longest

    def loss(look: Look) -> float:
        power = min(max(math.log10(max(look["classifier_loss"], 1e-9)), LOWEST), HIGHEST)
        return top + LOSS_TOP + LOSS_HEIGHT * (HIGHEST - power) / (HIGHEST - LOWEST)

    def share(name: str) -> Callable[[Look], float]:
        return lambda look: top + SHARE_TOP + SHARE_HEIGHT * (1 - look[name])

    pen.text((left + MARGIN, top + 6), training.name, INK, font)
    for power in (-4, -3, -2, -1, 0):
        pen.text((left + 4, loss({"classifier_loss": 10.0**power}) - 6), f"{10.0**power:g}", INK, font)
    for value in (0, 0.5, 1):
        pen.text((left + 14, share("v")({"v": value}) - 6), f"{100 * value:.0f} %", INK, font)
    plots = [(top + upper, top + upper + size) for upper, size in ((LOSS_TOP, LOSS_HEIGHT), (SHARE_TOP, SHARE_HEIGHT))]
    for above, below in plots:
        pen.rectangle((left + MARGIN, above, right, below), outline=GREY)
    floor = share("v")({"v": SETTINGS.floor})
    pen.line((left + MARGIN, floor, right, floor), GREY)
    if how.stop == "classifier_loss":
        _dotted(pen, left + MARGIN, right, loss({"classifier_loss": how.at}))
    elif how.stop == "accuracy":
        _dotted(pen, left + MARGIN, right, share("v")({"v": how.at}))
    after = [look for look in looks if look["step"]]
    for colour, height in ((INK, loss), (BLUE, share("surrogate_accuracy")), (ORANGE, share("accuracy"))):
        _line(pen, [(x(look), height(look)) for look in after], colour)
    stopped = x(looks[-1])
    for above, below in plots:
        pen.line((stopped, above, stopped, below), INK)
    for epoch in range(0, math.ceil(longest) + 1, 1 if longest <= 6 else 2):
        if epoch <= longest:
            pen.text((x({"epochs": epoch}) - 3, top + SHARE_TOP + SHARE_HEIGHT + 4), str(epoch), INK, font)


def _dotted(pen: ImageDraw.ImageDraw, left: float, right: float, height: float) -> None:
    for start in range(int(left), int(right), 6):
        pen.line((start, height, start + 2, height), INK)


def _line(pen: ImageDraw.ImageDraw, points: Sequence[tuple[float, float]], colour: Colour) -> None:
    if len(points) > 1:
        pen.line([*points], colour, width=2)


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("picture", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data = rw.open_dataset({"builtin": "signs", "split": "train", "n": 3000}, size=32)
    own = [*CONFIGURATIONS.values()]
    joint = [replace(how, surrogate="joint") for how in own if how.aim == "lee"]
    chosen = [*(how for how in own if how.aim == "sricharan"), *(how for how in own if how.aim == "lee"), *joint]
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    trainings = []
    for configuration in chosen:
        trainings.append(trained(configuration, data, given.folder, given.seed))
        print(f"| {' | '.join(trainings[-1].cells())} |", flush=True)
    if given.picture:
        draw(trainings).save(given.picture, optimize=True)


if __name__ == "__main__":
    main()
