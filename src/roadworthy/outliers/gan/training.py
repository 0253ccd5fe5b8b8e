"""Training of a GAN that can be stopped at any instant, and ends with the same generator as if it had not been."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import DamagedFile, ModelError
from roadworthy.core.files import write_bytes
from roadworthy.core.manifests import discard, drop_receipts, has_receipt, write_receipt
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Images
from roadworthy.data.parallel import Progress
from roadworthy.models.networks import load_weights
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.training import HELD_OUT, THREADS, Reader, TrainingCourse, finished_record, image_tensor
from roadworthy.outliers.gan.losses import discriminator_loss, entropy, generator_loss
from roadworthy.outliers.gan.networks import make_discriminator, make_generator, make_surrogate
from roadworthy.outliers.gan.settings import Configuration, GanSettings

WEIGHTS = "generator.safetensors"
GENERATOR, DISCRIMINATOR, SURROGATE = "generator", "discriminator", "surrogate"
EVALUATED = 512
"""Generated images that an epoch is judged by."""
GRID_COLUMNS, GRID_ROWS = 14, 3
LOSSES = ("surrogate_loss", "discriminator_loss", "generator_loss", "classifier_loss")
MOST_EPOCHS = "most_epochs"
"""What stopped a training that met its own criterion in no epoch."""

Epoch = dict[str, Any]


def train_gan(
    configuration: Configuration,
    settings: GanSettings,
    data: Dataset,
    folder: Path,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train generator, discriminator and surrogate side by side on 80 % of the objects of `data`; give the competence.

    In each step the surrogate learns the classes of real images (and of these alone, so that it stays an ordinary
    classifier), the discriminator learns to tell generated images from real ones, and the generator minimises the loss
    of its configuration. After each epoch the generator is judged in the way its images are used (running averages in
    batch normalisation, whole numbers 0-255). The history starts with epoch 0, before any training.

    `folder` gets `generator.safetensors`, `training.json` (settings, every epoch) and `epoch-*.png` (the same noise
    drawn after each epoch). While it trains, it also holds `checkpoint.safetensors`: a call with the same arguments
    goes on from there and ends with the same bits, on the same kind of machine. All randomness is keyed by (seed, name,
    epoch).
    """
    configuration.check(len(data.class_names))
    recipe: dict[str, Any] = {
        "data": data.fingerprint(),
        "configuration": asdict(configuration),
        "settings": asdict(settings),
        "seed": seed,
        "held_out": HELD_OUT,
        "threads": settings.threads or THREADS,
    }
    folder.mkdir(parents=True, exist_ok=True)
    advance = progress or (lambda images: None)
    record = finished_record(folder, recipe)
    if record is None:
        course = Course(configuration, settings, data, seed, recipe, recipe["threads"])
        course.resume(folder)
        advance(course.epoch * len(data))
        record = _run(course, data, folder, advance)
    else:
        load_weights(folder / WEIGHTS)
        advance(record["history"][-1]["epoch"] * len(data))
    advance((settings.epochs - record["history"][-1]["epoch"]) * len(data))
    return competence_of(record, settings)


def competence_of(record: dict[str, Any], settings: GanSettings) -> dict[str, Any]:
    """How good a finished GAN is, in the epoch that is kept."""
    kept = record["history"][record["kept_epoch"]]
    return {
        "surrogate_accuracy": kept["surrogate_accuracy"],
        "floor": settings.floor,
        "accuracy_on_generated": kept["accuracy"],
        "classifier_loss": kept["classifier_loss"],
        "generator_loss": kept["generator_loss"],
        "discriminator_loss": kept["discriminator_loss"],
        "stopped_by": record["stopped_by"],
        "epochs": record["history"][-1]["epoch"],
        "kept_epoch": kept["epoch"],
    }


def stopped_by(configuration: Configuration, most: int, history: Sequence[Epoch]) -> str | None:
    """What ends the training after these epochs; None where nothing does yet.

    >>> from roadworthy.outliers.gan.settings import CONFIGURATIONS
    >>> stopped_by(CONFIGURATIONS["lee_gan"], 9, [{"epoch": 0, "accuracy": 0.07}, {"epoch": 1, "accuracy": 0.35}])
    'accuracy'
    """
    last = history[-1]
    if not last["epoch"]:
        return None
    stop, at = configuration.stop, configuration.at
    figure = last["epoch" if stop == "epochs" else stop]
    if figure <= at if stop == "classifier_loss" else figure >= at:
        return stop
    return MOST_EPOCHS if last["epoch"] >= most else None


def kept_epoch(configuration: Configuration, history: Sequence[Epoch]) -> int:
    """The epoch whose generator is used: the last one, or where accuracy stops it, the most accurate one below that.

    >>> from roadworthy.outliers.gan.settings import CONFIGURATIONS
    >>> epochs = [{"epoch": e, "accuracy": a} for e, a in enumerate((0.07, 0.2, 0.1, 0.35))]
    >>> kept_epoch(CONFIGURATIONS["lee_gan"], epochs), kept_epoch(CONFIGURATIONS["sricharan_wgan_2e"], epochs)
    (1, 3)
    """
    if configuration.stop != "accuracy":
        return int(history[-1]["epoch"])
    below = [epoch for epoch in history if epoch["accuracy"] < configuration.at] or [history[0]]
    return int(max(below, key=lambda epoch: (epoch["accuracy"], epoch["epoch"]))["epoch"])


class Course(TrainingCourse):
    """The training of a GAN: generator, discriminator and surrogate."""

    kept = GENERATOR
    weights = WEIGHTS
    first_epoch = 0

    def __init__(
        self,
        configuration: Configuration,
        settings: GanSettings,
        data: Dataset,
        seed: int,
        recipe: dict[str, Any],
        threads: int,
    ) -> None:
        torch = import_torch()
        self.configuration, self.settings, self.classes = configuration, settings, len(data.class_names)
        width, streams = settings.width, Streams("gan", configuration.name, seed)
        (rng,) = streams.each(["start"])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            made = {
                GENERATOR: make_generator(self.classes, data.size, data.channels, width=width, latent=settings.latent),
                DISCRIMINATOR: make_discriminator(self.classes, data.size, data.channels, width=width),
                SURROGATE: make_surrogate(self.classes, data.channels, width=width),
            }
            self.judged = torch.randn(EVALUATED, settings.latent)
        super().__init__(made, streams, recipe, threads, lr=settings.learning_rate, betas=(settings.momentum, 0.999))

    @property
    def kept_epoch(self) -> int:
        """See `kept_epoch`."""
        return kept_epoch(self.configuration, self.history)

    def outcome(self) -> dict[str, Any]:
        """What stopped it, and which epoch is kept."""
        by = stopped_by(self.configuration, self.settings.epochs, self.history)
        return {"stopped_by": by, "kept_epoch": self.kept_epoch}

    def resume(self, folder: Path) -> None:
        """Go on from the checkpoint, where there is one and the pictures of its epochs are as they were written."""
        super().resume(folder)
        for epoch in self.history:
            path = folder / grid_name(epoch["epoch"])
            if not has_receipt(path):
                raise DamagedFile(f"{path} is missing or was changed: delete {folder} to train again")

    def draw(self, count: int) -> tuple[Any, Any]:
        """Images (count, C, H, W) of the noise that every epoch is judged by, as whole numbers 0-255, and classes."""
        torch = import_torch()
        labels = torch.arange(count) % self.classes
        images = self.networks[GENERATOR](self.judged[:count], labels)
        return images.mul(255).round(), labels

    def grid(self) -> Images:
        """Up to 14 classes side by side, three images of each, (H, W, C)."""
        torch = import_torch()
        columns = min(GRID_COLUMNS, self.classes)
        chosen = np.linspace(0, self.classes - 1, columns).round().astype(np.int64)
        generator = self.networks[GENERATOR].eval()
        with torch.inference_mode():
            images = generator(self.judged[: columns * GRID_ROWS], torch.from_numpy(np.tile(chosen, GRID_ROWS)))
        pixels = images.mul(255).round().permute(0, 2, 3, 1).numpy().astype(np.uint8)
        rows = pixels.reshape(GRID_ROWS, columns, *pixels.shape[1:])
        return np.vstack([np.hstack(list(row)) for row in rows])


def _run(course: Course, data: Dataset, folder: Path, advance: Progress) -> dict[str, Any]:
    """Train what is left, then write the generator that is kept and the record."""
    torch = import_torch()
    with course.parts_of(data) as ((labels, read), (held_out_labels, read_held_out)):
        held_out = len(held_out_labels)
        known = image_tensor(torch, read_held_out(np.arange(held_out))), torch.from_numpy(held_out_labels)
        try:
            if not course.history:
                course.close_epoch(**dict.fromkeys(LOSSES), **evaluate(course, *known))
                _save_grid(course, folder)
            while course.outcome()["stopped_by"] is None:
                losses = train_epoch(course, read, labels, advance)
                course.close_epoch(**losses, **evaluate(course, *known))
                advance(held_out)
                _save_grid(course, folder)
                course.save(folder)
        except FloatingPointError as error:
            raise _diverged(course, folder, str(error)) from None
    record = course.finish(folder)
    drop_receipts(folder, (grid_name(epoch["epoch"]) for epoch in record["history"]))
    return record


def train_epoch(course: Course, read: Reader, labels: NDArray[np.int64], advance: Progress) -> Epoch:
    """One pass over the training images in an order of its own; the mean losses."""
    torch = import_torch()
    batches = course.batches(len(labels), course.settings.batch)
    totals = dict.fromkeys(LOSSES, 0.0)
    for rows in batches:
        real, target = image_tensor(torch, read(rows)), torch.from_numpy(labels[rows])
        fake = course.networks[GENERATOR](torch.randn(len(rows), course.settings.latent), target)
        losses = (
            surrogate_step(course, real, target),
            discriminator_step(course, real, fake.detach(), target),
            *generator_step(course, fake, target),
        )
        for name, value in zip(LOSSES, losses, strict=True):
            if not math.isfinite(value):
                raise FloatingPointError(f"the {name.replace('_', ' ')} became {value}")
            totals[name] += value / len(batches)
        advance(len(rows))
    return totals


def surrogate_step(course: Course, real: Any, labels: Any) -> float:
    """The surrogate learns the classes of real images."""
    loss = import_torch().nn.functional.cross_entropy(course.networks[SURROGATE](real), labels)
    return course.step(SURROGATE, loss)


def discriminator_step(course: Course, real: Any, fake: Any, labels: Any) -> float:
    """The discriminator learns to tell real from generated images; the layers of a Wasserstein critic are clipped.

    The embedding of the class is not: a critic must change slowly with the image, not with what it is said to show.
    """
    judge, kind = course.networks[DISCRIMINATOR], course.configuration.loss
    value = course.step(DISCRIMINATOR, discriminator_loss(kind, judge(real, labels), judge(fake, labels)))
    if kind == "wasserstein":
        with import_torch().no_grad():
            for weight in judge.layers.parameters():
                weight.clamp_(-course.settings.clip, course.settings.clip)
    return value


def generator_step(course: Course, fake: Any, labels: Any) -> tuple[float, float]:
    """The generator learns from what both others say of its images, while these stay as they are.

    Gives its loss, and the classifier loss: how far the surrogate is from being certain of these images.
    """
    judge, surrogate = course.networks[DISCRIMINATOR], course.networks[SURROGATE]
    with _held_still(judge), _held_still(surrogate):
        surrogate.eval()
        logits = surrogate(fake)
        surrogate.train()
        how = course.configuration
        loss = generator_loss(how.aim, how.loss, judge(fake, labels), logits, how.beta)
        return course.step(GENERATOR, loss), float(entropy(logits.detach()))


@contextmanager
def _held_still(network: Any) -> Iterator[None]:
    """Gradients pass through it to its input and leave nothing in its weights."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


def evaluate(course: Course, known: Any, labels: Any) -> Epoch:
    """How often the surrogate is right about held-out real images, and about generated ones as they will be shown."""
    torch, surrogate = import_torch(), course.networks[SURROGATE].eval()
    course.networks[GENERATOR].eval()
    with torch.inference_mode():
        images, asked = course.draw(EVALUATED)
        logits = surrogate(images.div(255))
        if not bool(torch.isfinite(logits).all()):
            raise FloatingPointError("the surrogate's answer to generated images became no number")
        parts = [slice(start, start + EVALUATED) for start in range(0, len(labels), EVALUATED)]
        right = [int((surrogate(known[part]).argmax(1) == labels[part]).sum()) for part in parts]
        return {
            "surrogate_accuracy": sum(right) / len(labels),
            "accuracy": float((logits.argmax(1) == asked).float().mean()),
        }


def _save_grid(course: Course, folder: Path) -> None:
    grid = course.grid()
    done, encoded = cv2.imencode(".png", grid[..., ::-1] if grid.shape[2] == 3 else grid)
    assert done
    path = folder / grid_name(course.epoch)
    discard(path)
    write_bytes(path, encoded.tobytes())
    write_receipt(path)


def grid_name(epoch: int) -> str:
    """The file of an epoch's picture."""
    return f"epoch-{epoch:03d}.png"


def _diverged(course: Course, folder: Path, what: str) -> ModelError:
    """Keep the last good generator and say what happened."""
    name, kept = course.configuration.name, "no epoch was completed"
    if course.epoch:
        kept = f"the generator of epoch {course.kept_epoch} is kept in {course.keep(folder)}"
    return ModelError(f"GAN {name}: {what} in epoch {course.epoch + 1}: lower its learning rate; {kept}")
