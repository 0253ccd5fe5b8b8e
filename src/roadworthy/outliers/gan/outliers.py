"""Outliers that a trained generator draws: the GAN as an artifact of a run, and the sets of images it makes."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.random import Streams
from roadworthy.core.roles import Buildable, Dataset, Outliers, Trial
from roadworthy.core.types import Artifact, Images
from roadworthy.data.base import OpenedDataset
from roadworthy.data.parallel import Progress
from roadworthy.models.networks import load_weights, onnx_bytes
from roadworthy.models.onnx import cpu_session
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.training import HELD_OUT, RECORD, THREADS
from roadworthy.models.trials import TRIED_BATCH, TRIED_STEPS, StepTimes, few_images
from roadworthy.outliers.base import OutlierSet, Rows, ids_of, opened, prefixed
from roadworthy.outliers.gan.networks import make_generator
from roadworthy.outliers.gan.settings import Configuration, GanSettings
from roadworthy.outliers.gan.stopping import most_epochs
from roadworthy.outliers.gan.training import EVALUATED, WEIGHTS, train_gan

if TYPE_CHECKING:
    import torch

ALGORITHM = 3
"""Part of every recipe; a change of the training that gives other weights raises it."""
BLOCK = 64
"""Images drawn together, always the same ones, so that the bits of one never depend on what else is asked for."""


class Gan(Buildable):
    """A generator to be trained on `data`; its recipe and hash are known before, and do not depend on its name.

    `draw` makes images once it is built and loaded. The surrogate and the discriminator are left behind.
    """

    activity = "training"

    def __init__(
        self, configuration: Configuration, settings: GanSettings, data: Dataset, *, seed: int = 0, index: int = 0
    ) -> None:
        configuration.check(len(data.class_names))
        self.configuration, self.settings, self.data = configuration, settings, data
        self.seed, self.index = seed, index
        self._opened: tuple[Path, Any] | None = None

    @property
    def recipe(self) -> Artifact:
        """What it is made from."""
        settings = {name: value for name, value in asdict(self.settings).items() if value is not None}
        parts = {"algorithm": ALGORITHM, "configuration": self.configuration.aims(), "settings": settings}
        return Artifact("gan", parts, (self.data.fingerprint(),)).seeded(self.seed, self.index)

    @property
    def work(self) -> int:
        """How many images `build` counts; it may stop sooner."""
        return most_epochs(self.configuration, self.settings.epochs) * len(self.data)

    def build(self, workshop: Path, progress: Progress | None = None, store: Any = None) -> dict[str, Any]:
        """Train, or go on training, in a folder."""
        seed = self.recipe.seed
        return train_gan(self.configuration, self.settings, self.data, workshop, seed=seed, progress=progress)

    def trial(self) -> Trial:
        """Train for a few steps, look once and draw a block; looks count as often as they are made."""
        settings, images = self.settings, len(self.data)
        size = min(settings.batch, TRIED_BATCH)
        few = Gan(
            replace(self.configuration, stop="epochs", at=1),
            replace(settings, epochs=1, batch=size, look_every=TRIED_STEPS + 1, threads=1),
            few_images(self.data, math.ceil(TRIED_STEPS * size / (1 - HELD_OUT))),
        )
        times = StepTimes(settings.threads or THREADS)
        with TemporaryDirectory() as home:
            few.build(Path(home), times)
            few.load(Path(home))
            noise, labels = np.zeros((BLOCK, settings.latent)), np.zeros(BLOCK)
            few.draw(noise, labels)
            started = time.process_time()
            few.draw(noise, labels)
        drawn = (time.process_time() - started) / BLOCK
        learned = round(images * (1 - HELD_OUT))
        looks = math.ceil(math.ceil(learned / settings.batch) / settings.look_every)
        look = times.last * (EVALUATED + images - learned) / (EVALUATED + times.told[-1][1])
        return Trial((learned * times.per_image(len(times.told) - 1) + looks * look) / images, drawn)

    @property
    def trial_key(self) -> tuple[Any, ...]:
        """All that the time of an image depends on, but for what the losses are; not its seed."""
        return self.settings, self.data.fingerprint()

    def load(self, home: Path) -> None:
        """Make `draw` ready from the stored generator."""
        network = self.network()
        network.load_state_dict(load_weights(home / WEIGHTS)[0])
        inputs = _inputs(np.zeros((BLOCK, self.settings.latent)), np.zeros(BLOCK))
        tensors = {name: import_torch().from_numpy(values) for name, values in inputs.items()}
        self._opened = home, cpu_session(onnx_bytes(network, tensors, ["image"], fixed=(*inputs, "image")))

    def network(self) -> torch.nn.Module:
        """The generator before its weights are loaded."""
        data, width, latent = self.data, self.settings.width, self.settings.latent
        return make_generator(len(data.class_names), data.size, data.channels, width=width, latent=latent)

    @property
    def loaded(self) -> bool:
        """True once `draw` works."""
        return self._opened is not None

    @property
    def home(self) -> Path:
        """The folder it was built in."""
        return self._home_and_session()[0]

    def _home_and_session(self) -> tuple[Path, Any]:
        if self._opened is None:
            raise ModelError(f"GAN {self.configuration.name} is not trained yet: build it, then load it")
        return self._opened

    def training(self) -> dict[str, Any]:
        """The record of its training, every epoch."""
        record: dict[str, Any] = json.loads((self.home / RECORD).read_text(encoding="utf-8"))
        return record

    def draw(self, noise: NDArray[Any], labels: NDArray[Any]) -> Images:
        """Images (64, H, W, C) of noise (64, latent) and classes (64,)."""
        (images,) = self._home_and_session()[1].run(["image"], _inputs(noise, labels))
        return np.ascontiguousarray(np.rint(images * 255).astype(np.uint8).transpose(0, 2, 3, 1))


def _inputs(noise: NDArray[Any], labels: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {"noise": noise.astype(np.float32), "label": labels.astype(np.int64)}


@dataclass(frozen=True, kw_only=True)
class GanOutliers(Outliers):
    """As many images as the tested data has, drawn by a GAN, each asked for the class of one of them.

    Every image has noise of its own, so each is its own group.
    """

    name: ClassVar[str] = "gan"

    gan: Gan

    def parameters(self) -> dict[str, Any]:
        """What decides the pixels, but for the seed."""
        return {"gan": self.gan.recipe.hash, "configuration": self.gan.configuration.name}

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """The set; the GAN may still have to be built before a batch is asked for."""
        made = self.gan.data
        if (made.size, made.channels, made.class_names) != (data.size, data.channels, data.class_names):
            raise InputError(f"GAN {self.gan.configuration.name} was made for other images or classes than {data.name}")
        name = self.gan.configuration.name
        return OutlierSet(
            opened(data), self, partial(_drawn, self.gan), seed, name=name, groups=prefixed(name, data.ids)
        )


def _drawn(gan: Gan, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
    """Whole blocks are drawn, so that an image never depends on the rows it is asked for with."""
    images = np.empty((len(rows), *source.size, source.channels), np.uint8)
    for block in np.unique(rows // BLOCK):
        members = np.arange(block * BLOCK, (block + 1) * BLOCK) % len(source)
        noise = np.stack([rng.standard_normal(gan.settings.latent) for rng in streams.each(ids_of(source, members))])
        here = rows // BLOCK == block
        images[here] = gan.draw(noise, source.labels[members])[rows[here] - block * BLOCK]
    return images
