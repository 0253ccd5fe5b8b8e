"""The very pixels that a model was shown, made again from the data that a run names; nothing of a run is executed.

A stimulus depends on the seed, its settings and the image alone, so it can be made again at any time, by the function
that the engine itself shows it with. What would need code, an address, a model or a network is not opened.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from roadworthy.core.errors import InputError, RoadworthyError
from roadworthy.core.record import RunRecord, StimulusRecord
from roadworthy.core.remote import is_address
from roadworthy.core.types import UNDISTURBED, Images
from roadworthy.engine.folder import STUDY
from roadworthy.engine.plan import PlannedStimulus
from roadworthy.opening import images_bench
from roadworthy.study import load_study

OPEN_RUNS = 3
"""Runs whose data stays open."""
PATIENCE = 2.0
"""Seconds that a page waits for data to be opened; then it says so, and asks again."""
OPENING = "The data set is being opened and compared with that of the run; the pictures follow."
THUMBNAIL = 192
"""Pixels of the longer side of a thumbnail; smaller images are shown as they are."""


class NoPicture(InputError):
    """Why an image cannot be shown, as a sentence for who looks at its answers."""


class Pictures:
    """Makes the pictures of runs; the data of a few runs stays open."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, _Showings] = OrderedDict()
        self._turn = threading.Lock()

    def image(self, run: Path, record: RunRecord, case: str, row: int, image_id: str) -> Images:
        """The image of a row of a case, (H, W, C) as the model was given it; `NoPicture` says why there is none."""
        showing = self._of(run, record).showing(record, case)
        data = showing.data
        if not 0 <= row < len(data):
            raise NoPicture("The data set that the study names has fewer images now.")
        try:
            batch = showing.show(data.batch([row]))
        except (RoadworthyError, OSError) as error:
            raise NoPicture(f"The image cannot be made again: {error}.") from None
        if batch.ids[0].encode("utf-8", "backslashreplace").decode() != image_id:
            raise NoPicture("The data set that the study names holds another image in this place now.")
        image: Images = batch.images[0]
        return image

    def why_not(self, run: Path, record: RunRecord, case: str, patience: float = PATIENCE) -> str:
        """Why the images of a case cannot be shown, or not yet (`OPENING`); empty where they can."""
        showings = self._of(run, record)
        if not showings.wait(patience):
            return OPENING
        try:
            showings.showing(record, case)
        except NoPicture as error:
            return str(error)
        return ""

    def _of(self, run: Path, record: RunRecord) -> _Showings:
        with self._turn:
            showings = self._open.get(run)
            if showings is None or showings.created != record.created:
                showings = self._open[run] = _Showings(run, record)
            self._open.move_to_end(run)
            while len(self._open) > OPEN_RUNS:
                self._open.popitem(last=False)
            return showings


class _Showings:
    """All stimuli of a run that can be made again, by their hash; its data is opened beside, which may take long."""

    def __init__(self, run: Path, record: RunRecord) -> None:
        self.created = record.created
        self._run, self._problem = run, ""
        self._known: dict[str, PlannedStimulus] = {}
        self._problems: dict[str, str] = {}
        self._ready = threading.Event()
        threading.Thread(target=self._try_to_open, args=(record,), name="open data", daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the data is open, or cannot be opened; whether it came to that in time."""
        return self._ready.wait(seconds)

    def _try_to_open(self, record: RunRecord) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were told when the study was run
                self._open(record)
        except NoPicture as error:
            self._problem = str(error)
        except (RoadworthyError, OSError, MemoryError) as error:
            self._problem = _cannot(error)
        except Exception as error:  # a data set of somebody else may raise anything
            self._problem = _cannot(f"{type(error).__name__}: {error}")
        finally:
            self._ready.set()

    def showing(self, record: RunRecord, case: str) -> PlannedStimulus:
        """What a case showed; `NoPicture` where it cannot be made again."""
        self.wait()
        stimulus = record.cases[case].stimulus
        showing = self._known.get(stimulus.value().hash)
        if showing is None:
            raise NoPicture(self._problem or self._why(record, case, stimulus))
        if showing.requires or showing.attacked is not None:
            raise NoPicture("A network of the run drew these images, and the viewer runs none.")
        return showing

    def _why(self, record: RunRecord, case: str, stimulus: StimulusRecord) -> str:
        sources = [s for _, s, asked, _ in record.asked() if asked.case == case]
        for source in sources:
            if source in self._problems:
                return self._problems[source]
        return (
            f"The stimulus {stimulus.name} was made with a model or a network of the run, or with code that is not "
            "here: the viewer runs none."
        )

    def _open(self, record: RunRecord) -> None:
        if record.plugins:
            raise NoPicture("The images cannot be shown: the run has plugins, and the viewer runs no code of a run.")
        study, base = load_study(self._run / STUDY)
        for value in _texts([study.data, study.sources, study.outliers]):
            if is_address(value):
                raise NoPicture(
                    f"The images cannot be shown: some data is at an address ({value}), and the viewer fetches nothing."
                )
        chosen = [pair for pair in study.protocols.chosen() if pair[0].name in record.protocols]
        for source, part in record.sources.items():
            sized = (part.data.size[0], part.data.size[1]) if len(part.data.size) == 2 else None
            try:
                bench = images_bench(study, source, base, sized)
            except (RoadworthyError, OSError) as error:
                self._problems[source] = _cannot(error)
                continue
            if bench.data.fingerprint() != part.data.fingerprint:
                self._problems[source] = (
                    f"The images cannot be shown: those at the place that the study names ({bench.data.name}) are not "
                    "the images of the run any more (their fingerprint differs)."
                )
                continue
            undisturbed = {
                case.stimulus.value().hash: PlannedStimulus(case.stimulus.value(), bench.data)
                for case in record.cases.values()
                if case.stimulus.name == UNDISTURBED and case.stimulus.data == part.data.fingerprint
            }
            self._known |= undisturbed
            for protocol, settings in chosen:
                try:
                    shown = protocol.planned_stimuli(settings, bench)
                except (RoadworthyError, OSError, AssertionError):
                    continue  # its cases say why they cannot be shown
                self._known |= {showing.stimulus.hash: showing for showing in shown}


def _cannot(why: object) -> str:
    return f"The images cannot be shown: {str(why).rstrip('.')}."


def _texts(value: Any) -> Iterator[str]:
    """All texts in a part of a study."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def as_png(image: Images, thumbnail: bool = False) -> bytes:
    """An image (H, W, 1 or 3) as PNG, pixel by pixel; as a thumbnail no larger than `THUMBNAIL`."""
    height, width = image.shape[:2]
    scale = THUMBNAIL / max(height, width)
    if thumbnail and scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8).reshape(
            size[1], size[0], -1
        )
    coloured = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.shape[-1] == 3 else image
    done, encoded = cv2.imencode(".png", coloured)
    assert done
    return bytes(encoded.tobytes())
