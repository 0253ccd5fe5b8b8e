"""The thesis's study on CURE-TSR and CURE-TSD, on small trees in the layout of these sets: no result is claimed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml

import roadworthy as rw
from commands import call
from roadworthy.api import execute, prepare
from roadworthy.core.roles import Trial
from roadworthy.core.types import Batch
from roadworthy.data.curation import cure_tsd
from roadworthy.data.cure_tsr import SIGNS
from roadworthy.models import ReferenceModel
from roadworthy.outliers.gan import Gan
from roadworthy.preview import first_of_classes
from roadworthy.study import load_study, parse_study

pytest.importorskip("torch")
pytest.importorskip("safetensors")

STUDIES = Path(__file__).parent.parent / "studies"
CROPS = {"Real_Train": 15, "Real_Test": 3}
TRACKS, FRAMES = 4, 2


@pytest.fixture(autouse=True)
def no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run tries no GAN of the thesis's size here: that would take longer than all else."""
    monkeypatch.setattr(Gan, "trial", lambda own: Trial(per_work=1.0, per_image=0.0))
    monkeypatch.setattr(ReferenceModel, "trial", lambda own: Trial(per_work=1.0, per_image=0.0))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder `studies` with the files as they are shipped, and beside it `data` as their headers ask for it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "studies").mkdir()
    for name in ("heindrich-cure-tsr", "heindrich-cure-tsd", "cure-tsd-crops"):
        shutil.copy(STUDIES / f"{name}.yaml", tmp_path / "studies")
    pictures = np.random.default_rng(0).integers(0, 255, (30, 64, 64, 3), dtype=np.uint8)
    np.savez(tmp_path / "data" / "tinyimagenet_val.npz", images=pictures, labels=np.arange(30) % 3)
    return tmp_path


def drawn(count: int, split: str) -> Batch:
    """So many drawn signs of each class, one of each, then the next; the classes and their order are CURE-TSR's."""
    data = rw.open_dataset({"builtin": "signs", "split": split, "n": len(SIGNS) * max(20, 2 * count)}, size=32)
    assert data.class_names == SIGNS
    return data.batch(first_of_classes(data, len(SIGNS) * count))


def write_cure_tsr(root: Path) -> None:
    for part, count in CROPS.items():
        shown = drawn(count, "train" if part == "Real_Train" else "test")
        (root / part / "ChallengeFree").mkdir(parents=True)
        for number, (image, label) in enumerate(zip(shown.images, shown.labels, strict=True)):
            name = f"01_{label + 1:02d}_00_00_{number:04d}.bmp"
            cv2.imwrite(str(root / part / "ChallengeFree" / name), image[..., ::-1])


def write_cure_tsd(root: Path) -> None:
    """Two drives, one of each division of the authors: signs of all kinds one after another, for two frames each."""
    root.mkdir()
    for drive, split in (("01_01", "train"), ("01_04", "test")):
        shown, lines = drawn(TRACKS, split), [cure_tsd.HEADER]
        writer = cv2.VideoWriter(
            str(root / f"{drive}_00_00_00.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10, (64, 48), isColor=True
        )
        for number, (image, label) in enumerate(zip(shown.images, shown.labels, strict=True)):
            for frame in range(FRAMES):
                picture = np.full((48, 64, 3), 90, np.uint8)
                picture[8:40, 32:64] = image[..., ::-1]  # the sign reaches the edge of the picture
                writer.write(picture)
                corners = "_".join(map(str, (32, 8, 64, 8, 32, 40, 64, 40)))
                lines.append(f"{number * FRAMES + frame + 1:03d}_{label + 1:02d}_{corners}")
        writer.release()
        (root / f"{drive}.txt").write_text("\n".join(lines) + "\n")


def reduced(path: Path, shifts: Sequence[str]) -> tuple[dict[str, Any], Path]:
    """The study of a file with all that is counted at its smallest, for some shifts, and where its paths start from."""
    study, base = load_study(path)
    content = yaml.safe_load(study.to_yaml())
    content["size"] = 16
    for model in content["models"].values():
        model |= {"epochs": 1, "width": 2, "hidden": 4, "threads": 1}
    content["models"]["mc_dropout"]["passes"] = 2
    gans = {"configurations": ["sricharan_wgan_2e"], "width": 2, "latent": 4, "epochs": 1, "batch": 64, "threads": 1}
    content["protocols"]["classification"] |= {"shifts": [*shifts], "repeats": 1, "levels": [5]}
    content["protocols"]["ood"] |= {"transformed": [*shifts], "repeats": 1, "gans": {**gans, "count": 1}}
    return content, base


def check_reduced(path: Path, out: Path, shifts: Sequence[str], test_images: int) -> None:
    """Undisturbed data, all shifts and a set of every kind are shown to both networks."""
    content, base = reduced(path, shifts)
    prepared = prepare(parse_study(content, "study"), base=base, progress=rw.no_progress)
    run = execute(prepared, out, workers=1, progress=rw.no_progress)
    assert not run.failures
    table = run.tables["classification"]
    assert {*table["model"]} == {"baseline", "mc_dropout"}
    assert {*table["shift"]} == {"none", *shifts}
    assert {*table.loc[table["metric"] == "accuracy", "n"]} == {test_images}
    kinds = run.tables["ood"].groupby("kind")["ood_set"].nunique()
    assert dict(kinds) == {"derived": 4, "gan": 1, "literature": 3, "transformed": len(shifts)}
    assert run.verify() == []


def test_the_study_of_cure_tsr_is_planned_and_runs_on_its_layout(project: Path) -> None:
    write_cure_tsr(project / "data" / "CURE-TSR")
    study = project / "studies" / "heindrich-cure-tsr.yaml"
    planned = call("run", study, "--dry-run", "--out", project / "run")
    assert "42 images of 42 objects, 14 classes" in planned
    assert "training  100 of them" in planned, "both networks in 20 repeats, ten GANs of six kinds"
    assert not (project / "run").exists()
    check_reduced(study, project / "run", ["fog", "crop"], len(SIGNS) * CROPS["Real_Test"])


@pytest.mark.slow
def test_the_study_of_cure_tsd_is_planned_and_runs_on_crops_of_its_videos(project: Path) -> None:
    write_cure_tsd(project / "data" / "CURE-TSD")
    settings, crops = project / "studies" / "cure-tsd-crops.yaml", project / "data" / "cure-tsd"
    call("data", "curate", "--settings", settings, "--out", crops, "--workers", "1")
    whole = rw.open_dataset({"manifest": str(crops / "test.csv"), "classes": str(crops / "classes.txt")})
    assert len(whole) == 2 * len(SIGNS) * TRACKS * FRAMES, "every annotated sign, those at the edge too"
    assert Counter(Counter(whole.groups).values()) == {FRAMES: 2 * len(SIGNS) * TRACKS}
    assert whole.size == (64, 64)
    assert {path.name for path in crops.glob("*.csv")} >= {"test.csv"}
    assert not (crops / "train.csv").exists()
    study, tested = project / "studies" / "heindrich-cure-tsd.yaml", len(SIGNS) * 2 * FRAMES
    planned = call("run", study, "--dry-run", "--out", project / "run")
    assert f"{tested} images of {tested // FRAMES} objects, 14 classes" in planned
    content, base = reduced(study, ["fog"])
    bench = prepare(parse_study(content, "study"), base=base, progress=rw.no_progress).sources[""]
    assert bench.train is not None
    assert not {*bench.train.groups} & {*bench.data.groups}
    assert len(bench.train) + len(bench.data) == len(whole)
    check_reduced(study, project / "run", ["fog"], tested)
