"""A quiz for people: images of a study, disturbed as in its run, on a page of its own that asks for their class.

How well do people do where a model fails? The page needs no network and sends nothing: it saves a CSV file, which a
study names under `protocols: classification: human:`. No class is shown or stands readable in the page.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import jinja2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.files import write_bytes
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset
from roadworthy.core.types import UNDISTURBED, Images
from roadworthy.engine.plan import Bench, PlannedStimulus
from roadworthy.engine.progress import ProgressBar, no_progress
from roadworthy.opening import open_benches
from roadworthy.plugins import GivenPlugins
from roadworthy.protocols.classification.human import (
    COLUMNS,
    QuizImages,
    check_answers,
    image_key,
    people_rows,
    read_answers,
)
from roadworthy.protocols.classification.plan import planned_stimuli
from roadworthy.protocols.classification.settings import NAME
from roadworthy.shifts import Attack
from roadworthy.study import load_study

IMAGES = 10
"""Images of each shift in a quiz, unless asked otherwise."""
Question = tuple[PlannedStimulus, int]
"""What is shown, and the row of the image."""


def write_quiz(
    study: Path,
    out: Path,
    *,
    shift: str | None = None,
    level: int | None = None,
    images: int | None = None,
    seed: int = 0,
    plugins: GivenPlugins = (),
    trust: bool = False,
    progress: ProgressBar = no_progress,
) -> Iterator[str]:
    """Write the page of a quiz; yields the lines to print.

    Asked are `images` (10 unless given) of every shift of the study's classification, or of one, at a level (the
    study's highest unless given), and as many undisturbed ones.
    """
    bench, shown = _opened(study, plugins, trust, progress)
    chosen, left_out = choose_stimuli(shown, shift, level)
    for name in left_out:
        yield f"{name} is left out: it is an attack, which needs a model"
    questions = choose_questions(bench.data, chosen, IMAGES if images is None else images, seed)
    page = render_quiz(study.stem, bench.data, questions, bench.train)
    try:
        write_bytes(out, page.encode())
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from None
    yield f"{len(questions)} images of {len(chosen)} conditions: open {out} in a browser and save the answers there"
    yield f"then name them in the study (protocols: {NAME}: human: answers.csv) and run it"


def score_quiz(
    study: Path,
    answers: Path,
    *,
    plugins: GivenPlugins = (),
    trust: bool = False,
    progress: ProgressBar = no_progress,
) -> Iterator[str]:
    """How often people were right, shift by shift, as lines to print; nothing is written."""
    given = read_answers(answers)
    bench, shown = _opened(study, plugins, trust, progress)
    conditions = {showing.stimulus.key: (showing.stimulus.name, showing.stimulus.level) for showing in shown}
    images = QuizImages.of(bench.data)
    check_answers(given, [*conditions], images)
    yield f"{'shift':<22} {'level':>5} {'accuracy':>8}  {'95 % bounds':<15} {'n':>4} {'objects':>7} {'cannot tell':>11}"
    for row in people_rows(given, conditions, images):
        bounds = f"{row['lo']:.3f} to {row['hi']:.3f}"
        counts = f"{row['n']:>4} {row['groups']:>7} {row['cannot_tell']:>11}"
        yield f"{row['shift']:<22} {row['level']:>5} {row['value']:>8.3f}  {bounds:<15} {counts}"


def _opened(
    source: Path, plugins: GivenPlugins, trust: bool, progress: ProgressBar
) -> tuple[Bench, list[PlannedStimulus]]:
    """The data of a study, and what its classification shows in the first repeat."""
    study, base = load_study(source, plugins=plugins, trust=trust)
    settings = getattr(study.protocols, NAME)
    if settings is None:
        raise InputError(f"study {source} has no protocol {NAME}: a quiz asks about its shifts")
    if study.sources:
        raise InputError("a quiz is made of a study of one source, and this one has several")
    bench = open_benches(study, base, progress)[""]
    return bench, [s for s in planned_stimuli(settings, bench.data, bench.seed) if s.stimulus.repeat == 0]


def choose_stimuli(
    shown: Sequence[PlannedStimulus], shift: str | None, level: int | None
) -> tuple[list[PlannedStimulus], list[str]]:
    """Undisturbed data and every shift, or one, at a level or at its highest; and the attacks that are left out."""
    names = [*dict.fromkeys(s.stimulus.name for s in shown if s.stimulus.name != UNDISTURBED)]
    if shift is not None and shift not in names:
        raise UnknownName("shift of the study", shift, names)
    attacks = {s.stimulus.name for s in shown if isinstance(s.shift, Attack)}
    if shift in attacks:
        raise InputError(f"{shift} is an attack on a model and cannot be shown without it: name another shift")
    wanted = [name for name in ([shift] if shift else names) if name not in attacks]
    chosen = [s for s in shown if s.stimulus.name == UNDISTURBED]
    for name in wanted:
        by_level = {s.stimulus.level: s for s in shown if s.stimulus.name == name}
        if level is not None and level not in by_level:
            raise InputError(f"the study shows {name} at the levels {', '.join(map(str, by_level))}, not at {level}")
        chosen.append(by_level[max(by_level) if level is None else level])
    return chosen, [name for name in names if name in attacks and shift is None]


def choose_questions(data: Dataset, stimuli: Sequence[PlannedStimulus], images: int, seed: int) -> list[Question]:
    """So many images of each stimulus, each of another object, in a random order that the seed decides.

    Objects are drawn at random, and one image of each; stimuli share no object as long as there are enough.
    """
    by_group: dict[str, list[tuple[float, int]]] = {}
    of_images = (rng.random() for rng in Streams("quiz image", seed).each(data.ids))
    for row, (group, drawn) in enumerate(zip(data.groups, of_images, strict=True)):
        by_group.setdefault(group, []).append((drawn, row))
    if images > len(by_group):
        raise InputError(f"the data shows {len(by_group)} objects: at most so many images of a shift can be asked for")
    names = [*by_group]
    of_objects = [rng.random() for rng in Streams("quiz object", seed).each(names)]
    rows = [min(by_group[names[index]])[1] for index in np.argsort(of_objects, kind="stable")]
    questions = [
        (showing, rows[(place * images + number) % len(rows)])
        for place, showing in enumerate(stimuli)
        for number in range(images)
    ]
    keys = [f"{showing.stimulus.key} {data.ids[row]}" for showing, row in questions]
    order = np.argsort([rng.random() for rng in Streams("quiz order", seed).each(keys)], kind="stable")
    return [questions[index] for index in order]


def render_quiz(title: str, data: Dataset, questions: Sequence[Question], train: Dataset | None = None) -> str:
    """The page: every image by its stimulus and key, every class with an example that is not asked about.

    Examples are training images where there are any.
    """
    pictures: dict[tuple[str, int], str] = {}
    for showing in {showing.stimulus.key: showing for showing, _ in questions}.values():
        rows = [row for own, row in questions if own.stimulus.key == showing.stimulus.key]
        batch = showing.show(showing.data.batch(rows))
        pictures |= {(showing.stimulus.key, row): _uri(image) for row, image in zip(rows, batch.images, strict=True)}
    items = [
        {"stimulus": s.stimulus.key, "image": image_key(data.ids[row]), "picture": pictures[s.stimulus.key, row]}
        for s, row in questions
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    asked = {data.groups[row] for _, row in questions}
    classes = _classes(data, asked) if train is None else _classes(train, set())
    quiz = {"columns": COLUMNS, "items": items, "classes": classes}
    return environment.get_template("quiz.html.j2").render(title=title, quiz=quiz)


def _classes(data: Dataset, asked: set[str]) -> list[dict[str, Any]]:
    """Every class with an undisturbed example of an object that is not asked about; without one where all are."""
    examples: dict[int, int] = {}
    for row, label in enumerate(data.labels.tolist()):
        if data.groups[row] not in asked:
            examples.setdefault(label, row)
    shown = data.batch([*examples.values()])
    pictures = {label: _uri(image) for label, image in zip(examples, shown.images, strict=True)}
    return [{"name": name, "picture": pictures.get(label, "")} for label, name in enumerate(data.class_names)]


def _uri(image: Images) -> str:
    """An image as a PNG in the page itself."""
    pixels: NDArray[Any] = image if image.shape[-1] == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(".png", pixels)
    return f"data:image/png;base64,{base64.b64encode(encoded.tobytes()).decode()}"
