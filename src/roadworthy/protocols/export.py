"""Export: the disturbed images in a folder, for an owner who runs the model elsewhere and sends back only answers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2

from roadworthy.core.cells import ENDING, CsvText, escape_cell
from roadworthy.core.errors import InputError
from roadworthy.core.types import Images
from roadworthy.engine.folder import write_bytes, write_json
from roadworthy.engine.plan import THREADS, PlannedStimulus
from roadworthy.models.predictions import SOURCE
from roadworthy.shifts import Attack

UNFINISHED = {"images", "classes.txt", "HOWTO.md", "export.json"}
"""What an export that was stopped leaves: the manifest is written last."""

HOWTO = """# Images to be classified

`manifest.csv` lists every image: `stimulus`, `id` and `path` (a PNG in this folder). {run} with
the columns `stimulus` and `id`, copied from the manifest, and one column per class with its probability, named by the
class (`classes{of}.txt` holds the names in order); or `logit0`, `logit1`, ... for logits.
A model that says where the object is answers `box0` to `box3`: x0, y0, x1, y1 in pixels of the image, the right and
bottom edge exclusive, and `variance0` to `variance3` where it states a variance; beside the classes or alone.
Write numbers with nine significant digits, so that they are read back exactly. For answers that are the same to the
last bit, use batches of the size in `export.json` (the last one padded) and as many threads.

Labels are left out on purpose: answers are compared with them where this folder came from, by a study whose model is

    models:
      name: {{predictions: answers{of}.csv}}

A monitor that scores images elsewhere answers in the same way: one CSV (or Parquet) for all images, with the columns
`stimulus` and `id` and one more, either `score` (a number, higher for images that are more in-distribution) or
`reject` (1 where the monitor rejects the image, otherwise 0). A study takes it as

    monitors:
      name: {{monitor: stored, scores: scores.csv}}

Attacks are not among the images: they are made against the model under test, in a run.
"""
OF_ONE_SOURCE = "Run your model on all of them and write one CSV (or Parquet)"
OF_SEVERAL = """The column `source` names
the source that shows it, or all that do (`a;b`). Run the model of each SOURCE on all of its images and write one CSV
(or Parquet) for it"""


def check_exportable(stimuli: Sequence[PlannedStimulus], sources: Sequence[str], folder: Path) -> None:
    """Refuse what cannot be exported, and a folder with other things in it, before anything is built or written."""
    attacks = sorted({showing.stimulus.name for showing in stimuli if isinstance(showing.shift, Attack)})
    if attacks:
        raise InputError(
            f"the attack {attacks[0]} cannot be exported: it is made against the model under test, which is not here; "
            "leave it out of the study to be exported"
        )
    unfinished = {*UNFINISHED, *(f"classes-{source}.txt" for source in sources)}
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - unfinished):
        raise InputError(f"{folder} exists and is not empty: choose another folder to export to")


def export(
    stimuli: Sequence[tuple[PlannedStimulus, int, Sequence[str]]],
    class_names: Mapping[str, Sequence[str]],
    folder: Path,
    *,
    batch: int,
    artifacts: Mapping[str, Mapping[str, str]],
    progress: Callable[[int], None],
    workers: int,
) -> int:
    """Write every stimulus as PNG files with a manifest; returns the number of images.

    Stimuli come with the images to make at once and the sources that show them; class names by source, '' if it is one.
    What stimuli require is loaded: `artifacts` names, by hash, the SHA-256 of the files of each.
    """
    planned_stimuli, several = [showing for showing, _, _ in stimuli], "" not in class_names
    manifest = CsvText()
    rows = csv.writer(manifest, lineterminator=ENDING)
    rows.writerow(["stimulus", "id", "path", *([SOURCE] if several else [])])
    written = 0
    with ThreadPoolExecutor(workers) as pool:
        for showing, chunk, sources in stimuli:
            of = [";".join(sources)] if several else []
            (folder / "images" / showing.stimulus.key).mkdir(parents=True, exist_ok=True)
            for start in range(0, len(showing.data), chunk):
                shown = showing.show(showing.data.batch(slice(start, start + chunk)))
                paths = [_path(showing, start + row) for row in range(len(shown))]
                list(pool.map(_write_png, [folder / path for path in paths], shown.images))
                rows.writerows(
                    (shown.stimulus, escape_cell(image_id), path, *of)
                    for image_id, path in zip(shown.ids, paths, strict=True)
                )
                written += len(shown)
                progress(len(shown))
    for source, names in class_names.items():
        write_bytes(folder / (f"classes-{source}.txt" if source else "classes.txt"), ("\n".join(names) + "\n").encode())
    howto = HOWTO.format(run=OF_SEVERAL, of="-SOURCE") if several else HOWTO.format(run=OF_ONE_SOURCE, of="")
    write_bytes(folder / "HOWTO.md", howto.encode())
    write_json(
        folder / "export.json",
        {
            "batch": batch,
            "threads": THREADS,
            "images": written,
            "artifacts": {name: dict(files) for name, files in artifacts.items()},
            "stimuli": {showing.stimulus.key: showing.stimulus.config() for showing in planned_stimuli},
        },
    )
    write_bytes(folder / "manifest.csv", manifest.getvalue().encode())
    return written


def _path(showing: PlannedStimulus, row: int) -> str:
    return f"images/{showing.stimulus.key}/{row:06d}.png"


def _write_png(path: Path, image: Images) -> None:
    pixels = image if image.shape[-1] == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    done, encoded = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    if not done:
        raise InputError(f"cannot encode {path}")
    path.write_bytes(encoded.tobytes())
