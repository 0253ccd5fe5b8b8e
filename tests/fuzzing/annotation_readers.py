"""Readers of annotations: every format that crops can be cut from, read and now and then curated whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import yaml

from fuzzing.mutations import SCALARS, as_json, encode, spoil_bytes, spoil_json, spoil_lines, spoil_value
from fuzzing.readers import Files, Reader
from roadworthy.data.curation import curate
from roadworthy.data.curation.settings import CurationSettings
from test_curation_formats import (
    KITTI_CAR,
    VOC_OBJECT,
    as_file_per_frame,
    as_list,
    bdd_frame,
    bdd_object,
    coco,
    draw,
    kitti,
    voc,
    yolo,
)
from test_curation_readers import cuboid, nuimages_tables, sign_line, write_cadc, write_cure_tsd, write_nuimages

WHOLE = 40
"""One input in this many is curated whole: pictures are read, crops are written."""


def spoil_file(random: Random, name: str, content: bytes) -> bytes:
    """A file spoiled by the rules of its kind."""
    ending = name.rpartition(".")[2]
    if ending == "json":
        return spoil_json(random, content)
    if ending == "yaml":
        if random.random() < 0.3:
            return spoil_bytes(random, content)
        return yaml_bytes(spoil_value(random, yaml.safe_load(content)))
    if ending == "xml":
        return spoil_lines(random, content, random.choice((b"<", b">")))
    if ending == "txt":
        return spoil_lines(random, content, b"_" if b"_" in content else b" ")
    return spoil_bytes(random, content)


def yaml_bytes(value: object) -> bytes:
    """A nested value as YAML; as JSON, which is YAML too, where YAML cannot say it."""
    try:
        return encode(yaml.safe_dump(value, allow_unicode=True))
    except (yaml.YAMLError, UnicodeError):
        return as_json(value)


def spoil_annotations(random: Random, valid: Files) -> dict[str, bytes]:
    texts = [name for name in valid if not name.endswith((".png", ".jpg", ".mp4"))]
    made: dict[str, bytes] = {}
    for _ in range(random.choice((1, 1, 1, 2))):
        name = random.choice(list(valid)) if random.random() < 0.05 else random.choice(texts)
        made[name] = spoil_file(random, name, valid[name])
    made["whole.json"] = b"true" if random.randrange(WHOLE) == 0 else b"false"
    return made


def annotations(name: str, modules: tuple[str, ...], build: Callable[[Path], object]) -> Reader:
    """The reader of one format, whose valid files `build` writes."""

    def valid(folder: Path) -> Files:
        build(folder)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def read(folder: Path) -> None:
        whole = (folder / "whole.json").read_bytes() == b"true"
        settings = CurationSettings(format=name, root=str(folder))
        out = folder / "written" / "out"
        try:
            curate(settings, out if whole else None, dry_run=not whole, workers=1)
        finally:
            if whole:
                shutil.rmtree(folder / "written", ignore_errors=True)

    code = tuple(f"data/curation/{module}.py" for module in modules)
    return Reader(f"annotations {name}", code, valid, spoil_annotations, read, writes="written")


def build_kitti(root: Path) -> None:
    kitti(root, KITTI_CAR, "Cyclist 0.3 2 -1.65 1 2 30 40 1.86 0.60 2.02 4.59 1.32 45.84 -1.55")
    calibration = root / "training" / "calib" / "000007.txt"
    calibration.parent.mkdir(parents=True)
    calibration.write_text("\n".join(f"P{n}: 700 0 100 0 0 700 50 0 0 0 1 0" for n in range(4)))


def build_bdd(root: Path) -> None:
    as_list(bdd_frame(bdd_object(), bdd_object(attributes={"occluded": True, "truncated": False})), root)
    draw(root / "images" / "100k" / "train" / "a-1.jpg", 1280, 720)


def build_bdd_files(root: Path) -> None:
    as_file_per_frame(bdd_frame(bdd_object()), root)
    draw(root / "images" / "100k" / "train" / "a-1.jpg", 1280, 720)


def build_coco(root: Path) -> None:
    coco(root)
    draw(root / "val2017" / "x.jpg")


def build_voc(root: Path) -> None:
    voc(root, VOC_OBJECT, VOC_OBJECT.replace("car", "person"))
    lists = root / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("x\n")
    draw(root / "JPEGImages" / "x.jpg")


def build_yolo(root: Path) -> None:
    yolo(root, "1 0.5 0.5 0.25 0.5", "0 0.2 0.2 0.1 0.1")


def build_cadc(root: Path) -> None:
    boxes = [cuboid(), cuboid("Pedestrian", "b", position={"x": 20.0, "y": 1.0, "z": 0.0})]
    write_cadc(root, [{"cuboids": boxes}, {"cuboids": boxes[:1]}])


# the settings of a curation

SETTINGS = {
    **{"format": "yolo", "root": ".", "classes": {"car": ["car"]}, "drop": ["person"], "keep_hidden": ["car"]},
    **{"splits": {"val": "test"}, "rejected": "rejected.txt", "corrected": "corrected.csv", "options": {}},
}


def spoil_settings(random: Random, valid: Files) -> dict[str, bytes]:
    value = spoil_value(random, SETTINGS, sorted(SETTINGS))
    made = {"settings.json": as_json(value if isinstance(value, dict) else {"format": random.choice(SCALARS)})}
    if random.random() < 0.6:
        made["settings.json"] = as_json(SETTINGS)
        made["rejected.txt"] = spoil_lines(random, valid["rejected.txt"], b"/")
        made["corrected.csv"] = spoil_lines(random, valid["corrected.csv"])
    return made


def read_settings(folder: Path) -> None:
    from roadworthy.core.validation import validated

    content = json.loads((folder / "settings.json").read_text(errors="surrogateescape"))
    named = {
        name: str(folder / content[name]) for name in ("rejected", "corrected") if isinstance(content.get(name), str)
    }
    settings = validated(CurationSettings, {**content, **named, "root": str(folder)}, "the settings")
    curate(settings, None, dry_run=True)


def valid_settings(folder: Path) -> Files:
    build_yolo(folder)
    valid = {"rejected.txt": b"val/x_00\n", "corrected.csv": b"id,x0,y0,x1,y1\nval/x_01,1,2,60,70\n"}
    for name, content in valid.items():
        (folder / name).write_bytes(content)
    return valid


SHARED = ("reading", "frames", "selection")
READERS = [
    annotations("kitti", ("kitti", *SHARED), build_kitti),
    annotations("bdd100k", ("bdd100k", "json_lists", *SHARED), build_bdd),
    annotations("coco", ("coco", "json_lists", *SHARED), build_coco),
    annotations("voc", ("voc", *SHARED), build_voc),
    annotations("yolo", ("yolo", *SHARED), build_yolo),
    annotations("cadc", ("cadc", "projection", *SHARED), build_cadc),
    annotations("nuimages", ("nuimages", "json_lists", *SHARED), lambda root: write_nuimages(root, nuimages_tables())),
    annotations(
        "cure_tsd", ("cure_tsd", *SHARED), lambda root: write_cure_tsd(root, [sign_line(2, 10), sign_line(5, 12)])
    ),
    Reader(
        "settings of a curation",
        ("data/curation/settings.py", "data/curation/selection.py"),
        valid_settings,
        spoil_settings,
        read_settings,
    ),
]
