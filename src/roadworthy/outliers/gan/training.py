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
from roadworthy.outliers.gan.losses import discriminator_loss, entropy, generator_loss, surrogate_loss
from roadworthy.outliers.gan.networks import make_discriminator, make_generator, make_surrogate
from roadworthy.outliers.gan.settings import Configuration, GanSettings
from roadworthy.outliers.gan.stopping import Look, competent_since, epoch_of, kept_look, most_epochs, stopped_by

WEIGHTS = "generator.safetensors"
GENERATOR, DISCRIMINATOR, SURROGATE = "generator", "discriminator", "surrogate"
EVALUATED = 512
"""Generated images that a look judges by."""
GRID_COLUMNS, GRID_ROWS = 14, 3
KEPT_GRID = "kept.png"
"""What the generator that is kept draws."""
LOSSES = ("surrogate_loss", "discriminator_loss", "generator_loss", "classifier_loss")

Losses = tuple[float, ...]
Figures = dict[str, Any]


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

    In each step the surrogate learns the classes of real images (where its configuration says `joint`, also to be
    unsure of generated ones), the discriminator learns to tell generated images from real ones, and the generator
    minimises the loss of its configuration. After every `look_every` steps, and after each epoch, the training is
    looked at: the generator is judged in the way its images are used (running averages in batch normalisation, whole
    numbers 0-255), the surrogate by the objects that are held out. Looks decide when it stops and what is kept: see
    `stopping`. They change nothing in the training itself.

    `folder` gets `generator.safetensors`, `training.json` (settings, every look, every epoch), `epoch-*.png` (the same
    noise drawn after each epoch; epoch 0 is before any training) and `kept.png`. While it trains, it also holds
    `checkpoint.safetensors`, written after each epoch: a call with the same arguments goes on from there, makes the
    looks of an epoch that was cut short anew, and ends with the same bits, on the same kind of machine. All randomness
    is keyed by (seed, epoch).
    """
    configuration.check(len(data.class_names))
    recipe: dict[str, Any] = {
        "data": data.fingerprint(),
        "configuration": configuration.aims(),
        "settings": asdict(settings),
        "seed": seed,
        "held_out": HELD_OUT,
        "threads": settings.threads or THREADS,
    }
    folder.mkdir(parents=True, exist_ok=True)
    left = most_epochs(configuration, settings.epochs) * len(data)

    def advance(images: int) -> None:
        nonlocal left
        left -= images
        if progress is not None:
            progress(images)

    record = finished_record(folder, recipe)
    if record is None:
        course = Course(configuration, settings, data, seed, recipe, recipe["threads"])
        course.resume(folder)
        advance(course.epoch * len(data))
        record = _run(course, data, folder, advance)
    else:
        load_weights(folder / WEIGHTS)
    advance(left)
    return competence_of(record, configuration, settings)


def competence_of(record: dict[str, Any], configuration: Configuration, settings: GanSettings) -> dict[str, Any]:
    """How good a finished GAN is at the look whose generator is kept, and when and by what its training was stopped."""
    looks = record["looks"]
    kept = next(look for look in looks if look["step"] == record["kept_step"])
    return {
        "surrogate": configuration.surrogate,
        "surrogate_accuracy": kept["surrogate_accuracy"],
        "floor": settings.floor,
        "competent_step": competent_since(looks),
        "accuracy_on_generated": kept["accuracy"],
        "classifier_loss": kept["classifier_loss"],
        "generator_loss": kept["generator_loss"],
        "discriminator_loss": kept["discriminator_loss"],
        "stopped_by": record["stopped_by"],
        "steps": looks[-1]["step"],
        "epochs": epoch_of(looks[-1]),
        "kept_step": kept["step"],
        "kept_epoch": record["kept_epoch"],
    }


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
        self.looks: list[Look] = []
        width, streams = settings.width, Streams("gan", seed)
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
    def steps(self) -> int:
        """How many steps were done up to the last look."""
        return int(self.looks[-1]["step"]) if self.looks else 0

    @property
    def kept_epoch(self) -> int:
        """The epoch that the look whose generator is kept lies in."""
        return epoch_of(self.looks[kept_look(self.configuration, self.looks)])

    @property
    def stopped_by(self) -> str | None:
        """What has stopped it; None where nothing has."""
        return stopped_by(self.configuration, self.settings.epochs, self.looks)

    def outcome(self) -> dict[str, Any]:
        """What stopped it, which look's generator is kept, and all looks."""
        kept = self.looks[kept_look(self.configuration, self.looks)]["step"]
        return {
            "stopped_by": self.stopped_by,
            "kept_step": kept,
            "kept_epoch": self.kept_epoch,
            "looks": self.looks,
        }

    def close_look(self, step: int, epochs: float, losses: Sequence[Losses], figures: Figures) -> None:
        """Note the figures of a look, and the generator where it is the one to keep.

        `losses` are those of the steps since the look before, of which the means are noted.
        """
        competent = figures["surrogate_accuracy"] >= self.settings.floor
        self.looks.append({"step": step, "epochs": epochs, **mean_losses(losses), **figures, "competent": competent})
        if kept_look(self.configuration, self.looks) == len(self.looks) - 1:
            self.best = {name: value.clone() for name, value in self.networks[self.kept].state_dict().items()}

    def close_epoch(self, **figures: Any) -> None:
        """Note how an epoch, or what was trained of it, ended."""
        self.history.append({"epoch": len(self.history) + self.first_epoch, **figures})

    def restore(self, record: dict[str, Any]) -> None:
        """The epochs and the looks so far."""
        super().restore(record)
        self.looks = record["looks"]

    def resume(self, folder: Path) -> None:
        """Go on from the checkpoint, where there is one and the pictures of its epochs are as they were written."""
        super().resume(folder)
        for epoch in self.history:
            path = folder / grid_name(epoch["epoch"])
            if not has_receipt(path):
                raise DamagedFile(f"{path} is missing or was changed: delete {folder} to train again")

    def draw(self, count: int) -> tuple[Any, Any]:
        """Images (count, C, H, W) of the noise that every look judges by, as whole numbers 0-255, and classes."""
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


def mean_losses(steps: Sequence[Losses]) -> Figures:
    """The mean of each loss over some steps, by name; None where there is no step.

    >>> mean_losses([(1.0, 2.0, 0.0, 4.0), (3.0, 2.0, 0.0, 0.0)])["classifier_loss"], mean_losses([])["generator_loss"]
    (2.0, None)
    """
    columns = zip(*steps, strict=True) if steps else [None] * len(LOSSES)
    return {
        name: None if values is None else math.fsum(values) / len(values)
        for name, values in zip(LOSSES, columns, strict=True)
    }


def _run(course: Course, data: Dataset, folder: Path, advance: Progress) -> dict[str, Any]:
    """Train what is left, then write the generator that is kept, what it draws, and the record."""
    torch = import_torch()
    with course.parts_of(data) as ((labels, read), (held_out_labels, read_held_out)):
        held_out = len(held_out_labels)
        known = image_tensor(torch, read_held_out(np.arange(held_out))), torch.from_numpy(held_out_labels)
        try:
            if not course.looks:
                figures = evaluate(course, *known)
                course.close_look(0, 0.0, [], figures)
                course.close_epoch(**mean_losses([]), **figures)
                _save_grid(course, folder / grid_name(0))
            while course.stopped_by is None:
                train_epoch(course, read, labels, known, advance)
                advance(held_out)
                _save_grid(course, folder / grid_name(course.epoch))
                course.save(folder)
        except FloatingPointError as error:
            raise _diverged(course, folder, str(error)) from None
        course.networks[GENERATOR].load_state_dict(course.best)
        _save_grid(course, folder / KEPT_GRID)
    record = course.finish(folder)
    drop_receipts(folder, (KEPT_GRID, *(grid_name(epoch["epoch"]) for epoch in record["history"])))
    return record


def train_epoch(course: Course, read: Reader, labels: NDArray[np.int64], known: Any, advance: Progress) -> None:
    """One pass over the training images in an order of its own, with looks on the way, of which any may end it.

    known  the held-out images (N, C, H, W) and their classes (N,), which the surrogate is judged by
    """
    torch, settings = import_torch(), course.settings
    batches = course.batches(len(labels), settings.batch)
    done, steps, seen = course.epoch, course.steps, 0
    losses: list[Losses] = []
    for number, rows in enumerate(batches, 1):
        real, target = image_tensor(torch, read(rows)), torch.from_numpy(labels[rows])
        losses.append(train_step(course, real, target))
        advance(len(rows))
        if number % settings.look_every == 0 or number == len(batches):
            figures = evaluate(course, *known)
            course.close_look(steps + number, done + number / len(batches), losses[seen:], figures)
            seen = number
            if course.stopped_by is not None:
                break
    course.close_epoch(**mean_losses(losses), **figures)


def train_step(course: Course, real: Any, labels: Any) -> Losses:
    """Surrogate, discriminator and generator, one after the other, on a batch of real images; their `LOSSES`."""
    fake = course.networks[GENERATOR](import_torch().randn(len(real), course.settings.latent), labels)
    losses = (
        surrogate_step(course, real, labels, fake.detach()),
        discriminator_step(course, real, fake.detach(), labels),
        *generator_step(course, fake, labels),
    )
    for name, value in zip(LOSSES, losses, strict=True):
        if not math.isfinite(value):
            raise FloatingPointError(f"the {name.replace('_', ' ')} became {value}")
    return losses


def surrogate_step(course: Course, real: Any, labels: Any, fake: Any) -> float:
    """The surrogate learns the classes of real images; trained jointly, also to be unsure of generated ones.

    Then both go through it as one batch, so that batch normalisation treats them alike, now and when it is asked.
    """
    surrogate, how = course.networks[SURROGATE], course.configuration
    if how.surrogate != "joint":
        return course.step(SURROGATE, surrogate_loss(surrogate(real), labels))
    torch = import_torch()
    answers, generated = surrogate(torch.cat([real, fake])).split([len(real), len(fake)])
    return course.step(SURROGATE, surrogate_loss(answers, labels, generated, how.surrogate_beta))


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


@contextmanager
def _asked(network: Any) -> Iterator[None]:
    """Inside, it answers as it does once it is trained."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


def evaluate(course: Course, known: Any, labels: Any) -> Figures:
    """How often the surrogate is right about held-out real images, and about generated ones as they will be shown.

    Networks that were training go on training afterwards, with nothing of theirs changed.
    """
    torch, surrogate = import_torch(), course.networks[SURROGATE]
    with _asked(surrogate), _asked(course.networks[GENERATOR]), torch.inference_mode():
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


def _save_grid(course: Course, path: Path) -> None:
    grid = course.grid()
    done, encoded = cv2.imencode(".png", grid[..., ::-1] if grid.shape[2] == 3 else grid)
    assert done
    discard(path)
    write_bytes(path, encoded.tobytes())
    write_receipt(path)


def grid_name(epoch: int) -> str:
    """The file of an epoch's picture."""
    return f"epoch-{epoch:03d}.png"


def _diverged(course: Course, folder: Path, what: str) -> ModelError:
    """Keep the last good generator and say what happened."""
    name, kept = course.configuration.name, "no step was looked at"
    if course.steps:
        kept = f"the generator of step {course.outcome()['kept_step']} is kept in {course.keep(folder)}"
    return ModelError(f"GAN {name}: {what} in epoch {course.epoch + 1}: lower its learning rate; {kept}")
