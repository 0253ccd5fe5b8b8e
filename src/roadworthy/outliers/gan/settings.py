"""What a GAN for outliers is told: what to aim at and when to stop (a configuration), and how it trains (settings)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.validation import MOST_BATCH, MOST_EPOCHS, MOST_THREADS, MOST_WIDTH, check_whole

AIMS = ("lee", "sricharan")
LOSSES = ("original", "wasserstein")
STOPS = ("accuracy", "classifier_loss", "epochs")
SURROGATES = ("real", "joint")
MOST_STEPS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A kind of GAN, as a row of the thesis's table 9.

    aim   `lee`: images that look real and leave the surrogate unsure; `sricharan`: images that do not, and make it sure
    loss  `original` or `wasserstein`
    stop  `accuracy`: once the surrogate names the class of the share `at` of generated images; the best generator below
          it is kept. `classifier_loss`: once log K - KL(P || U), the entropy of the surrogate's answers to generated
          images, is at most `at` on average over the steps since the last look. `epochs`: after that many. With these
          the last one is kept. See `stopping` on looks, and on the surrogate's floor
    beta  weight of what the surrogate says against what the discriminator says
    surrogate       `real`: it learns the classes of real images alone; `joint`: also the uniform answer to generated
                    ones, together with the GAN, as the classifier of Lee et al.
    surrogate_beta  weight of that answer, KL(U || P), in the loss of a `joint` surrogate

    >>> CONFIGURATIONS["sricharan_wgan_005"].at
    0.005
    """

    name: str
    aim: str
    loss: str
    stop: str
    at: float
    beta: float = 1.0
    surrogate: str = "real"
    surrogate_beta: float = 1.0

    def __post_init__(self) -> None:
        choices = {"aim": AIMS, "loss": LOSSES, "stop": STOPS, "surrogate": SURROGATES}
        for what, known in choices.items():
            if (value := getattr(self, what)) not in known:
                raise UnknownName(f"{what} of GAN {self.name}", value, known)
        if not (math.isfinite(self.at) and self.at > 0) or (self.stop == "epochs" and self.at != int(self.at)):
            raise InputError(f"GAN {self.name} cannot stop at {self.stop} {self.at}: give a number above 0")
        if self.stop == "accuracy" and self.at > 1:
            raise InputError(f"GAN {self.name} cannot stop at an accuracy of {self.at}: give a share, such as 0.3")
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise InputError(f"GAN {self.name}: beta is a number that is not negative, not {self.beta}")
        if not (math.isfinite(self.surrogate_beta) and self.surrogate_beta > 0):
            raise InputError(f"GAN {self.name}: surrogate_beta is a number above 0, not {self.surrogate_beta}")
        if self.surrogate != "joint" and self.surrogate_beta != 1:
            raise InputError(f"GAN {self.name}: surrogate_beta is for surrogate: joint, not for {self.surrogate}")

    def aims(self) -> dict[str, Any]:
        """All of it but its name: what decides the weights."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}

    def check(self, num_classes: int) -> None:
        """Refuse an accuracy that guessing reaches."""
        if self.stop == "accuracy" and self.at <= 1 / num_classes:
            raise InputError(
                f"GAN {self.name} stops at an accuracy of {self.at:g}, which guessing among {num_classes} classes "
                f"reaches: give it more than {1 / num_classes:g}"
            )


WASSERSTEIN_BETA = 0.02
"""For Lee: a critic with weights clipped at 0.01 moves within 0.1; against that a whole KL would be all that counts."""

CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        Configuration(name="lee_gan", aim="lee", loss="original", stop="accuracy", at=0.3),
        Configuration(name="lee_wgan", aim="lee", loss="wasserstein", stop="accuracy", at=0.3, beta=WASSERSTEIN_BETA),
        Configuration(name="sricharan_gan_005", aim="sricharan", loss="original", stop="classifier_loss", at=0.005),
        Configuration(name="sricharan_wgan_002", aim="sricharan", loss="wasserstein", stop="classifier_loss", at=0.002),
        Configuration(name="sricharan_wgan_2e", aim="sricharan", loss="wasserstein", stop="epochs", at=2),
        Configuration(name="sricharan_wgan_005", aim="sricharan", loss="wasserstein", stop="classifier_loss", at=0.005),
    )
}
"""The six kinds of the thesis's table 9. Weights of what the surrogate says are ours, and so is `surrogate: real` for
Lee's, whose classifier the thesis trains jointly with the GAN: studies/heindrich.yaml asks for `joint`."""


@dataclass(frozen=True, kw_only=True)
class GanSettings:
    """How every GAN of a study trains.

    By default width, batch and learning rate are the thesis's, and the epochs those that its figure 7 shows. The thesis
    states none of the rest. How many GANs, and what their surrogate learns, is not set here.

    width          filters of the discriminator's first layer; the others follow (64: 64-128-256-512-1)
    latent         numbers that an image is drawn from
    batch, learning_rate, momentum: of Adam (momentum is its first beta)
    clip           bound of the weights of a Wasserstein critic
    epochs         at most this many, where its configuration has not stopped it before
    look_every     steps from one look at the training to the next, counted in each epoch; its end is always one
    floor          accuracy on held-out real images from which what the surrogate says of generated ones can stop the
                   training, and below which it is marked undertrained
    threads        of the training, part of the recipe where given

    >>> PRESETS["small"].width, PRESETS["thesis"].batch
    (16, 96)
    """

    width: int = 64
    latent: int = 100
    batch: int = 96
    learning_rate: float = 2e-4
    momentum: float = 0.5
    clip: float = 0.01
    epochs: int = 30
    look_every: int = 10
    floor: float = 0.5
    threads: int | None = None

    def __post_init__(self) -> None:
        most = {"width": MOST_WIDTH, "latent": MOST_WIDTH, "epochs": MOST_EPOCHS, "batch": MOST_BATCH}
        most |= {"look_every": MOST_STEPS}
        for setting, limit in most.items():
            check_whole(
                f"the {setting.replace('_', ' ')} of GANs",
                getattr(self, setting),
                4 if setting == "batch" else 1,
                limit,
            )
        if self.threads is not None:
            check_whole("the threads of GANs", self.threads, 1, MOST_THREADS)
        if not (0 < self.learning_rate < math.inf and 0 < self.clip < math.inf):
            raise InputError("the learning rate and the clip of GANs are numbers above 0")
        if not (0 <= self.momentum < 1 and 0 <= self.floor <= 1):
            raise InputError("the momentum of GANs is at least 0 and below 1, their floor a share")


PRESETS = {"small": GanSettings(width=16, batch=32, epochs=12), "thesis": GanSettings()}
SETTINGS = tuple(field.name for field in fields(GanSettings))


def configuration(name: str) -> Configuration:
    """One of the six `CONFIGURATIONS` by its name."""
    if name not in CONFIGURATIONS:
        raise UnknownName("GAN configuration", name, CONFIGURATIONS)
    return CONFIGURATIONS[name]
