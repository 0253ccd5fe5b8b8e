"""Images per second of every shift and of the peers, side by side in one process on one thread.

    python benchmarks/shifts.py [--out result.json] [--shifts noise blur ...] [--corruptions c_fog ...]
                                [--outliers swirl ...] [--seconds 1.0]

Ours run at level 5, the most work, random streams included. Where a peer has the same operation (noise, blur, rotation,
perspective) it gets the same strength, and ours must not be slower than the fastest. Where a peer's operation only goes
by the same name (its snow whitens bright pixels, its fog is a fractal) its figure is shown for orientation. Every
contestant gets the batch in memory in the format it prefers. Turns are interleaved and the best one counts, in
processor time, so that other work on the machine matters less. Exits with 1 where one of ours is slower than 10,000
images/s at 64x64 or than the fastest peer.

The common corruptions run against imagecorruptions-imaug at severity 5, with the published parameters for 224x224 at
both sizes, as that package has them. None of ours may be slower, and all must be three times as fast in the geometric
mean.

Fog and rain in units, `fog_veil` and `rainfall`, have no peer; they must reach 1,000 images/s at 64x64 and 150 at
256x256, level 2, with a depth map.

No package makes the outliers. They run, random streams included, against what people write instead, image by image:
imagecorruptions' Gaussian noise for both noises, scikit-image's swirl, a numpy permutation of the pixels, two halves
put together, channels indexed. None of ours may be slower than imagecorruptions' noise or scikit-image's swirl; the
others are shown for orientation, since a plain line of numpy without a stream per image is all they do.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Without this folder on the path, its files cannot hide a package of the same name that a peer imports.
if (here := str(Path(__file__).resolve().parent)) in sys.path:
    sys.path.remove(here)
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2
import numpy as np

from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS as REGISTRY
from roadworthy.core.types import Batch
from roadworthy.data import open_dataset
from roadworthy.outliers import make_outliers
from roadworthy.shifts import make_shift
from roadworthy.shifts.corruptions import COMMON, EXTRA

LEVEL = 5
FLOOR = 10_000
SAME_OPERATION = ("noise", "blur", "rotation", "perspective")
SHIFTS = ("noise", "grey", "snow", "rain", "fog", "perspective", "blur", "rotation", "crop", "reflection")
CORRUPTIONS = (*COMMON, *EXTRA)
CORRUPTION_FACTOR = 3.0
OUTLIERS = ("uniform_noise", "normal_noise", "shuffled", "mixed", "swirl", "colour_swap")
JUDGED_OUTLIERS = ("uniform_noise", "normal_noise", "swirl")
COUNTS = {64: 128, 224: 16}
WEATHER = ("fog_veil", "rainfall")
WEATHER_LEVEL = 2
WEATHER_FLOORS = {64: 1_000, 256: 150}
PEERS = {
    "albumentations": "albumentations",
    "kornia": "kornia",
    "imagecorruptions": "imagecorruptions-imaug",
    "nrtk": "nrtk",
}

Turn = Callable[[], Any]


def ours(name: str, batch: Batch) -> Turn:
    shift, streams = make_shift(name, LEVEL), Streams(0, name)
    return lambda: shift(batch, streams)


def albumentations(name: str, images: np.ndarray) -> Turn | None:
    import albumentations as A

    size = images.shape[1]
    unit = size / 64
    sigma = make_shift("blur", LEVEL).parameters()["sigma"] * unit
    crop = int(54 * unit)
    made = {
        "noise": lambda: A.AdditiveNoise(
            noise_type="uniform", spatial_mode="per_pixel", noise_params={"ranges": [(-0.5, 0.5)] * 3}, p=1
        ),
        "grey": lambda: A.ToGray(p=1),
        "snow": lambda: A.RandomSnow(p=1),
        "rain": lambda: A.RandomRain(p=1),
        "fog": lambda: A.RandomFog(p=1),
        "perspective": lambda: A.Perspective(scale=(0.15, 0.15), p=1),
        "blur": lambda: A.GaussianBlur(blur_limit=0, sigma_limit=(sigma, sigma), p=1),
        "rotation": lambda: A.Rotate(limit=(-30, 30), p=1),
        "crop": lambda: A.RandomSizedCrop(min_max_height=(crop, crop), size=(size, size), p=1),
        "reflection": lambda: A.RandomSunFlare(src_radius=int(12 * unit), p=1),
    }
    transform = made[name]()
    return lambda: [transform(image=image)["image"] for image in images]


def albumentations_gauss(name: str, images: np.ndarray) -> Turn | None:
    """Its other noise, which is the faster of the two."""
    import albumentations as A

    if name != "noise":
        return None
    transform = A.GaussNoise(std_range=(0.15, 0.15), p=1)
    return lambda: [transform(image=image)["image"] for image in images]


def kornia(name: str, images: np.ndarray) -> Turn | None:
    import kornia.augmentation as K
    import torch

    torch.set_num_threads(1)
    size = images.shape[1]
    sigma = make_shift("blur", LEVEL).parameters()["sigma"] * size / 64
    taps = 2 * int(np.ceil(3 * sigma)) + 1
    made = {
        "noise": lambda: K.RandomGaussianNoise(std=0.15, p=1),
        "grey": lambda: K.RandomGrayscale(p=1),
        "snow": lambda: K.RandomSnow(p=1),
        "rain": lambda: K.RandomRain(number_of_drops=(100, 100), drop_height=(5, 10), drop_width=(-3, 3), p=1),
        "perspective": lambda: K.RandomPerspective(0.6, p=1),
        "blur": lambda: K.RandomGaussianBlur((taps, taps), (sigma, sigma), p=1),
        "rotation": lambda: K.RandomRotation(30.0, p=1),
        "crop": lambda: K.RandomResizedCrop((size, size), scale=((54 / 64) ** 2,) * 2, ratio=(1.0, 1.0), p=1),
    }
    if name not in made:
        return None
    transform = made[name]()
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float() / 255
    return lambda: transform(tensor)


def imagecorruptions(name: str, images: np.ndarray) -> Turn | None:
    from imagecorruptions import corrupt

    known = {"noise": "gaussian_noise", "blur": "gaussian_blur", "fog": "fog", "snow": "snow", "rain": "spatter"}
    if name not in known:
        return None
    if name == "blur":
        from skimage.filters import gaussian

        # Its own severities have other sigmas; this is its implementation at ours.
        sigma = make_shift("blur", LEVEL).parameters()["sigma"] * images.shape[1] / 64
        return lambda: [
            np.uint8(np.clip(gaussian(image / 255.0, sigma=sigma, channel_axis=-1), 0, 1) * 255) for image in images
        ]
    return lambda: [corrupt(image, corruption_name=known[name], severity=3) for image in images]


def nrtk(name: str, images: np.ndarray) -> Turn | None:
    from nrtk.impls.perturb_image.environment import HazePerturber
    from nrtk.impls.perturb_image.geometric.random import RandomRotationPerturber
    from nrtk.impls.perturb_image.photometric.blur import GaussianBlurPerturber
    from nrtk.impls.perturb_image.photometric.noise import GaussianNoisePerturber

    # It takes a kernel size, from which OpenCV derives sigma = 0.3 ((k - 1) / 2 - 1) + 0.8.
    sigma = make_shift("blur", LEVEL).parameters()["sigma"] * images.shape[1] / 64
    taps = 2 * round((sigma - 0.8) / 0.3 + 1) + 1
    made = {
        "noise": lambda: GaussianNoisePerturber(var=0.0225),
        "blur": lambda: GaussianBlurPerturber(ksize=taps),
        "fog": lambda: HazePerturber(factor=1.0),
        "rotation": lambda: RandomRotationPerturber(limit=30.0),
    }
    if name not in made:
        return None
    perturber = made[name]()
    return lambda: [perturber(image=image)[0] for image in images]


CONTESTANTS = {
    "albumentations": (albumentations, albumentations_gauss),
    "kornia": (kornia,),
    "imagecorruptions": (imagecorruptions,),
    "nrtk": (nrtk,),
}


def available() -> dict[str, str]:
    """Each peer's version, or why it is absent."""
    found = {}
    for module, package in PEERS.items():
        try:
            importlib.import_module(module)
            found[module] = importlib.metadata.version(package)
        except ModuleNotFoundError as error:
            found[module] = "not installed" if error.name == module else f"cannot import: {error}"
        except Exception as error:
            found[module] = f"cannot import: {type(error).__name__}: {str(error).splitlines()[0]}"
    return found


def race(turns: dict[str, Turn], count: int, seconds: float) -> dict[str, float]:
    """Best images per second of each contestant; turns are interleaved until each has had its time."""
    best, spent = dict.fromkeys(turns, 0.0), dict.fromkeys(turns, 0.0)
    for turn in turns.values():
        turn()
    while min(spent.values()) < seconds:
        for name, turn in turns.items():
            if spent[name] < seconds:
                started = time.process_time()
                turn()
                elapsed = time.process_time() - started
                spent[name] += elapsed
                best[name] = max(best[name], count / elapsed)
    return best


def prepared(name: str, batch: Batch, peers: dict[str, str]) -> tuple[dict[str, Turn], dict[str, str]]:
    """The turns of one shift, and for each peer that has none the reason."""
    turns, reasons = {"roadworthy": ours(name, batch)}, {}
    for peer, makers in CONTESTANTS.items():
        if not peers[peer][0].isdigit():
            reasons[peer] = peers[peer]
            continue
        for number, make in enumerate(makers):
            try:
                turn = make(name, batch.images)
                if turn is not None:
                    turn()
                    turns[peer if number == 0 else f"{peer} {make.__name__.partition('_')[2]}"] = turn
                elif number == 0:
                    reasons[peer] = "has none"
            except Exception as error:
                reasons[peer] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return turns, reasons


def picture_batch(size: int, count: int) -> Batch:
    images = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    images = np.stack([cv2.GaussianBlur(image, (0, 0), 2) for image in images])
    return Batch(tuple(f"image-{i}" for i in range(count)), images, np.zeros(count, np.int64))


def corruption_turns(name: str, batch: Batch) -> dict[str, Turn]:
    from imagecorruptions import corrupt

    published = REGISTRY.get(name).LEVELS[LEVEL - 1]
    at_224 = {key: value[-1] if isinstance(value, tuple) else value for key, value in published.items()}
    shift, streams = make_shift(name, LEVEL, {LEVEL: at_224}), Streams(0, name)

    def theirs() -> None:
        with contextlib.redirect_stdout(None):
            for image in batch.images:
                corrupt(image, corruption_name=name.removeprefix("c_"), severity=LEVEL)

    return {"roadworthy": lambda: shift(batch, streams), "imagecorruptions": theirs}


def race_corruptions(names: Sequence[str], seconds: float) -> tuple[list[dict[str, Any]], list[str]]:
    """The table of the common corruptions, and what falls short."""
    rows, misses = [], []
    print(f"\n{'corruption':<22}{'size':>5}{'ours/s':>9}{'imagecorruptions/s':>20}{'ratio':>8}")
    for size, count in COUNTS.items():
        batch = picture_batch(size, count // 4)
        for name in names:
            speed = race(corruption_turns(name, batch), len(batch), seconds)
            mine, other = speed["roadworthy"], speed["imagecorruptions"]
            rows.append({"corruption": name, "size": size, "images_per_second": mine, "imagecorruptions": other})
            print(f"{name:<22}{size:>5}{mine:>9,.0f}{other:>20,.0f}{mine / other:>8.1f}", flush=True)
            if mine < other:
                misses.append(f"{name} at {size}x{size}: {mine / other:.2f} times imagecorruptions")
    factor = statistics.geometric_mean(row["images_per_second"] / row["imagecorruptions"] for row in rows)
    print(f"{'geometric mean':<56}{factor:>8.1f}")
    if factor < CORRUPTION_FACTOR:
        misses.append(f"corruptions: {factor:.2f} times imagecorruptions, less than {CORRUPTION_FACTOR:g}")
    return rows, misses


def race_weather(names: Sequence[str], seconds: float) -> tuple[list[dict[str, Any]], list[str]]:
    """The table of fog and rain in units, and what falls short."""
    rows, misses = [], []
    print(f"\n{'weather':<12}{'size':>5}{'ours/s':>9}{'at least':>10}")
    for size, floor in WEATHER_FLOORS.items():
        plain = picture_batch(size, 128 if size == 64 else 16)
        metres = np.random.default_rng(0).uniform(5, 200, plain.images.shape[:3]).astype(np.float32)
        batch = dataclasses.replace(plain, depth=metres)
        for name in names:
            shift, streams = make_shift(name, WEATHER_LEVEL), Streams(0, name)
            turns = {name: lambda shift=shift, streams=streams, batch=batch: shift(batch, streams)}
            speed = race(turns, len(batch), seconds)[name]
            rows.append({"weather": name, "size": size, "images_per_second": speed, "at_least": floor})
            print(f"{name:<12}{size:>5}{speed:>9,.0f}{floor:>10,}", flush=True)
            if speed < floor:
                misses.append(f"{name} at {size}x{size}: {speed:,.0f} images/s, less than {floor:,}")
    return rows, misses


def outlier_turns(name: str, batch: Batch) -> dict[str, Turn]:
    labels = np.arange(len(batch)) % 4
    made = make_outliers(name).make(open_dataset((batch.images, labels)), seed=0)

    def ours() -> None:
        made.batch(slice(None))

    rng, images = np.random.default_rng(0), batch.images
    half = images.shape[1] // 2
    if name in ("uniform_noise", "normal_noise"):
        from imagecorruptions import corrupt

        return {
            "ours": ours,
            "imagecorruptions": lambda: [corrupt(i, corruption_name="gaussian_noise") for i in images],
        }
    if name == "swirl":
        from skimage.transform import swirl

        strength, radius = made.maker.strength, made.maker.radius * images.shape[1] / 64
        return {"ours": ours, "scikit-image": lambda: [swirl(i, strength=strength, radius=radius) for i in images]}
    plain = {
        "shuffled": lambda image: rng.permutation(image.reshape(-1, 3)).reshape(image.shape),
        "mixed": lambda image: np.concatenate([image[:half], images[rng.integers(len(images))][half:]]),
        "colour_swap": lambda image: image[..., [2, 0, 1]].copy(),
    }[name]
    return {"ours": ours, "numpy": lambda: [plain(image) for image in images]}


def race_outliers(names: Sequence[str], seconds: float) -> tuple[list[dict[str, Any]], list[str]]:
    """The table of the makers of outliers, and what falls short."""
    rows, misses = [], []
    print(f"\n{'outliers':<16}{'size':>5}{'ours/s':>10}{'peer/s':>10}{'ratio':>8}  peer")
    for size, count in COUNTS.items():
        batch = picture_batch(size, count)
        for name in names:
            (_, mine), (peer, other) = race(outlier_turns(name, batch), len(batch), seconds).items()
            rows.append({"outliers": name, "size": size, "images_per_second": mine, "peer": peer, "theirs": other})
            judged = name in JUDGED_OUTLIERS
            ratio = f"{mine / other:.1f}" if judged else f"({mine / other:.1f})"
            print(f"{name:<16}{size:>5}{mine:>10,.0f}{other:>10,.0f}{ratio:>8}  {peer}", flush=True)
            if judged and mine < other:
                misses.append(f"{name} at {size}x{size}: {mine / other:.2f} times {peer}")
    return rows, misses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    parser.add_argument("--shifts", nargs="*", choices=SHIFTS, default=SHIFTS, help="only these shifts")
    parser.add_argument("--corruptions", nargs="*", choices=CORRUPTIONS, default=CORRUPTIONS, help="only these")
    parser.add_argument("--outliers", nargs="*", choices=OUTLIERS, default=OUTLIERS, help="only these")
    parser.add_argument("--weather", nargs="*", choices=WEATHER, default=WEATHER, help="only these")
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each contestant for each shift and size")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    peers = available()
    cv2.setNumThreads(1)
    for peer, state in peers.items():
        print(f"{peer:<18}{state}")
    print(f"\n{'shift':<12}{'size':>5}{'ours/s':>9}{'ratio':>8}  peers, images/s")
    rows, misses = [], []
    for size, count in COUNTS.items():
        batch = picture_batch(size, count)
        for name in options.shifts:
            turns, reasons = prepared(name, batch, peers)
            speed = race(turns, count, options.seconds)
            mine = speed.pop("roadworthy")
            ratio = mine / max(speed.values()) if speed else None
            gated = name in SAME_OPERATION
            if size == 64 and mine < FLOOR:
                misses.append(f"{name} at {size}x{size}: {mine:,.0f} images/s, less than {FLOOR:,}")
            if gated and ratio is not None and ratio < 1:
                misses.append(f"{name} at {size}x{size}: {ratio:.2f} times the fastest peer")
            rows.append(
                {"shift": name, "size": size, "images_per_second": mine, "peers": speed, "absent": reasons,
                 "same_operation": gated, "ratio": ratio}
            )  # fmt: skip
            others = ", ".join(f"{peer} {rate:,.0f}" for peer, rate in sorted(speed.items(), key=lambda item: -item[1]))
            shown = "" if ratio is None else f"{ratio:.1f}" if gated else f"({ratio:.1f})"
            failed = "".join(f"; {peer} failed: {why}" for peer, why in reasons.items() if "Error" in why)
            print(f"{name:<12}{size:>5}{mine:>9,.0f}{shown:>8}  {others}{failed}", flush=True)
    print("\nA ratio in brackets compares operations that only share the name; it is not judged.")
    corrupted: list[dict[str, Any]] = []
    if options.corruptions and peers["imagecorruptions"][0].isdigit():
        corrupted, slow = race_corruptions(options.corruptions, options.seconds)
        misses += slow
    elif options.corruptions:
        print(f"\nNo table of the common corruptions: imagecorruptions {peers['imagecorruptions']}.")
    made: list[dict[str, Any]] = []
    if options.outliers and peers["imagecorruptions"][0].isdigit():
        made, slow = race_outliers(options.outliers, options.seconds)
        misses += slow
    weather, slow = race_weather(options.weather, options.seconds)
    misses += slow
    for miss in misses:
        print(f"MISSED: {miss}")
    if options.out:
        result = {
            "machine": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "opencv": cv2.__version__,
            "numpy": np.__version__,
            "peers": peers,
            "level": LEVEL,
            "rows": rows,
            "corruptions": corrupted,
            "outliers": made,
            "weather": weather,
            "misses": misses,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
