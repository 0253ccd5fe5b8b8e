"""Where does a small network look? Heat maps against real masks: Penn-Fudan pedestrians and CamVid frames.

    python examples/street_masks.py pennfudan.zip runs/pennfudan
    python examples/street_masks.py camvid.zip runs/camvid

Cuts crops with their masks out of the zip (the original layout of either set), writes them as train.npz and test.npz,
lets a study train a small residual network on the one and measures dependability on the other. Photographs (Penn-Fudan)
are never in both. CamVid's frames are one short drive, so its test frames show the same street a little later: what is
measured there says little about other streets.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

SIZE = 48
MARGIN = 1.3
"""Side of a crop by the longer side of its object."""
TEST_SHARE = 1 / 3
CAMVID = {"sign": (6,), "vehicle": (8,), "pedestrian": (9, 10)}
"""Values of CamVid's index masks; 10 is a cyclist."""
BACKGROUND = "background"
LEAST_PIXELS = 150


@dataclass(frozen=True)
class Scene:
    """A photograph with its objects: masks by class, one per object."""

    name: str
    image: np.ndarray
    objects: list[tuple[str, np.ndarray]]


@dataclass(frozen=True)
class Crop:
    """A square cut out of a scene."""

    scene: str
    label: str
    image: np.ndarray
    mask: np.ndarray


def pennfudan(path: Path) -> Iterator[Scene]:
    """Every photograph of the Penn-Fudan set with the mask of each pedestrian."""
    with zipfile.ZipFile(path) as archive:
        names = {
            Path(name).stem: name
            for name in archive.namelist()
            if Path(name).parent.name in ("JPEGImages", "PNGImages")
        }
        for stem, name in sorted(names.items()):
            ids = _read(archive, f"PennFudanPed/PedMasks/{stem}_mask.png", cv2.IMREAD_GRAYSCALE)
            people = [("pedestrian", ids == number) for number in range(1, int(ids.max()) + 1)]
            yield Scene(stem, _read(archive, name, cv2.IMREAD_COLOR)[..., ::-1], people)


def camvid(path: Path) -> Iterator[Scene]:
    """Every frame of CamVid with a mask for each connected sign, vehicle and pedestrian of a certain size."""
    with zipfile.ZipFile(path) as archive:
        masks = {Path(name).stem: name for name in archive.namelist() if "annot" in name and name.endswith(".png")}
        for stem, name in sorted(masks.items()):
            values = _read(archive, name, cv2.IMREAD_GRAYSCALE)
            found = []
            for label, wanted in CAMVID.items():
                count, parts = cv2.connectedComponents(np.isin(values, wanted).astype(np.uint8))
                found += [(label, parts == part) for part in range(1, count) if (parts == part).sum() >= LEAST_PIXELS]
            image = _read(archive, name.replace("annot", ""), cv2.IMREAD_COLOR)[..., ::-1]
            yield Scene(stem, image, found)


SETS = {"pennfudan": pennfudan, "camvid": camvid}


def crops(scenes: list[Scene], *, views: int, empty: int, seed: int = 0) -> list[Crop]:
    """`views` squares around every object, shifted and scaled a little, and `empty` ones per scene without any."""
    rng = np.random.default_rng(seed)
    cut = []
    for scene in scenes:
        height, width = scene.image.shape[:2]
        anything = (
            np.any([mask for _, mask in scene.objects], axis=0) if scene.objects else np.zeros((height, width), bool)
        )
        for label, mask in scene.objects:
            same = np.any([other for name, other in scene.objects if name == label], axis=0)
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            middle = (rows[0] + rows[-1]) / 2, (columns[0] + columns[-1]) / 2
            longest = max(rows[-1] - rows[0], columns[-1] - columns[0]) + 1
            for view in range(views):
                jitter = rng.uniform(-0.12, 0.12, 2) * longest if view else np.zeros(2)
                side = longest * MARGIN * (rng.uniform(0.85, 1.2) if view else 1.0)
                cut.append(_crop(scene, label, same, middle + jitter, side, flip=bool(view % 2)))
        for _ in range(empty):
            for _ in range(50):
                side = rng.uniform(0.2, 0.6) * min(height, width)
                centre = rng.uniform(side / 2, height - side / 2), rng.uniform(side / 2, width - side / 2)
                top, left = int(centre[0] - side / 2), int(centre[1] - side / 2)
                if not anything[max(top, 0) : int(top + side), max(left, 0) : int(left + side)].any():
                    cut.append(_crop(scene, BACKGROUND, anything, centre, side, flip=False))
                    break
    return cut


def _crop(scene: Scene, label: str, mask: np.ndarray, centre: tuple[float, float], side: float, *, flip: bool) -> Crop:
    scale = SIZE / side
    move = np.array([[scale, 0, SIZE / 2 - scale * centre[1]], [0, scale, SIZE / 2 - scale * centre[0]]])
    image = cv2.warpAffine(
        np.ascontiguousarray(scene.image), move, (SIZE, SIZE), flags=cv2.INTER_AREA, borderMode=cv2.BORDER_REFLECT
    )
    covered = cv2.warpAffine(mask.astype(np.uint8), move, (SIZE, SIZE), flags=cv2.INTER_NEAREST) > 0
    if flip:
        image, covered = image[:, ::-1], covered[:, ::-1]
    return Crop(scene.name, label, image, covered)


def save(path: Path, found: list[Crop], class_names: list[str]) -> None:
    """The crops as an npz that a study can name; the scene is the group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        images=np.stack([crop.image for crop in found]).astype(np.uint8),
        masks=np.stack([crop.mask for crop in found]),
        labels=np.array([class_names.index(crop.label) for crop in found]),
        class_names=np.array(class_names),
        group=np.array([crop.scene for crop in found]),
        id=np.array([f"{crop.scene}-{number}" for number, crop in enumerate(found)]),
    )


def prepare(archive: Path, out: Path) -> list[str]:
    """Write train.npz and test.npz of a zip, scenes in one of the two alone; returns the class names."""
    read = next((reader for name, reader in SETS.items() if name in archive.name.lower()), None)
    if read is None:
        raise SystemExit(f"{archive} is neither pennfudan.zip nor camvid.zip")
    scenes = list(read(archive))
    first_test = round(len(scenes) * (1 - TEST_SHARE))
    names = [*dict.fromkeys(label for scene in scenes for label, _ in scene.objects), BACKGROUND]
    names = sorted(names[:-1]) + names[-1:]
    save(out / "train.npz", crops(scenes[:first_test], views=8, empty=16), names)
    save(out / "test.npz", crops(scenes[first_test:], views=1, empty=4, seed=1), names)
    return names


def study(out: Path) -> dict[str, object]:
    """A study that trains a residual network on the crops and measures dependability with their masks."""
    return {
        "name": f"{out.name}-masks",
        "data": {"train": str(out / "train.npz"), "test": str(out / "test.npz")},
        "models": {"resnet": {"reference": "resnet", "epochs": 12, "floor": 0.85}},
        "protocols": {
            "dependability": {
                "transformers": [
                    {"name": "rotation", "level": 2},
                    {"name": "blur", "level": 2},
                    {"name": "fgsm", "epsilon": 2},
                ],
                "occlusion": {"patch": 16, "stride": 6, "fill": "mean", "rho": 0.5, "images": 80, "pictures": 16},
            }
        },
    }


def _read(archive: zipfile.ZipFile, name: str, flags: int) -> np.ndarray:
    pixels = cv2.imdecode(np.frombuffer(io.BytesIO(archive.read(name)).getvalue(), np.uint8), flags)
    if pixels is None:
        raise SystemExit(f"{name} in {archive.filename} is no picture")
    return pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="pennfudan.zip or camvid.zip")
    parser.add_argument("out", type=Path, help="folder for the crops and the run")
    parser.add_argument("--workers", type=int)
    arguments = parser.parse_args()
    from roadworthy.api import run_study

    print("classes:", ", ".join(prepare(arguments.archive, arguments.out)))
    run = run_study(study(arguments.out), out=arguments.out / "run", workers=arguments.workers)
    controls = ("interpretation_chance", "interpretation_masked", "interpretation_place")
    wanted = ("accuracy", "confidence_loss", "interpretation_precision", *controls, "occlusion_covering")
    table = run.tables["dependability"]
    for row in table[table["metric"].isin(wanted)].to_dict("records"):
        print(
            f"{row['metric']:<26}{row['scope']:<24}{row['value']:.3f} [{row['lo']:.3f}, {row['hi']:.3f}] n={row['n']}"
        )
    print("report:", run.path / "report.html")


if __name__ == "__main__":
    main()
