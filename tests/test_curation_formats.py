"""Annotation formats: what each reader makes of a small set, and the sentence that a malformed annotation gets."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from roadworthy.core.errors import InputError
from roadworthy.data import open_dataset
from roadworthy.data.curation import READERS, CurationSettings, Frame, curate
from roadworthy.data.curation.frames import read_frames
from roadworthy.data.curation.selection import select


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def draw(path: Path, width: int = 200, height: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.zeros((height, width, 3), np.uint8))


def frames(name: str, root: Path, **options: Any) -> list[Frame]:
    return list(read_frames(name, root, options))


# KITTI

KITTI_CAR = "Car 0.00 0 1.85 10.5 20 60 80.25 1.67 1.87 3.69 -16.53 2.39 58.49 1.57"


def kitti(root: Path, *lines: str) -> Path:
    write(root / "training" / "label_2" / "000007.txt", "\n".join(lines))
    draw(root / "training" / "image_2" / "000007.png")
    return root


def test_kitti_is_read(tmp_path: Path) -> None:
    kitti(
        tmp_path,
        KITTI_CAR,
        "Cyclist 0.3 2 -1.65 1 2 30 40 1.86 0.60 2.02 4.59 1.32 45.84 -1.55",
        "DontCare -1 -1 -10 503.89 169.71 590.61 190.13 -1 -1 -1 -1000 -1000 -1000 -10",
    )
    (frame,) = frames("kitti", tmp_path)
    assert (frame.id, frame.width, frame.height, frame.split, frame.horizon) == ("000007", 200, 100, "training", None)
    car, cyclist, region = frame.objects
    assert (car.id, car.kind, car.box, car.distance) == ("000007_00", "Car", (10.5, 20, 60, 80.25), 58.49)
    assert (car.occluded, car.truncated, car.unusable) == (False, False, "")
    assert (cyclist.occluded, cyclist.truncated) == (True, True)
    assert (region.unusable, region.distance) == ("a region that is not annotated", None)
    (frame,) = frames("kitti", tmp_path / "training", most_occluded=2, most_truncated=0.5)
    assert (frame.objects[1].occluded, frame.objects[1].truncated) == (False, False)


def test_the_horizon_of_kitti_is_the_row_of_the_principal_point(tmp_path: Path) -> None:
    kitti(tmp_path, KITTI_CAR)
    calibration = tmp_path / "training" / "calib" / "000007.txt"
    write(calibration, "P0: 1\nP2: 721 0 609 44 0 721 172.85 0.2 0 0 1 0.002\n")
    assert frames("kitti", tmp_path)[0].horizon == 172.85
    calibration.write_text("P2: 721 0\n")
    with pytest.raises(InputError, match=r"calib/000007\.txt, line 1: P2 has 2 values, not 12"):
        frames("kitti", tmp_path)


@pytest.fixture
def kitti_sample(shared_data: Path, tmp_path: Path) -> Path:
    archive = shared_data / "kitti_object.zip"
    if not archive.exists():
        pytest.skip(f"no KITTI sample at {archive}: set ROADWORTHY_TEST_DATA to the folder that holds it")
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "kitti")
    return tmp_path / "kitti"


def test_the_kitti_sample_becomes_crops(kitti_sample: Path, tmp_path: Path) -> None:
    curation = curate(CurationSettings(format="kitti", root=str(kitti_sample), size=128), tmp_path / "out")
    assert [(crop.object.id, crop.label) for crop in curation.selection.crops] == [
        ("000000_00", "pedestrian"),
        ("000001_01", "car"),
        ("000002_01", "car"),
    ]
    assert curation.selection.reasons() == {
        "a region that is not annotated": 4,
        "the class 'Cyclist' is dropped": 1,
        "the class 'Misc' is dropped": 1,
        "the class 'Truck' is dropped": 1,
    }
    data = open_dataset(tmp_path / "out" / "test.csv", classes=tmp_path / "out" / "classes.txt")
    assert data.class_names == ("car", "pedestrian")
    batch = data.batch(range(3))
    assert batch.conditions["distance"].tolist() == [8.41, 58.49, 34.38]
    assert batch.conditions["horizon"].tolist() == [180.5066, 172.854, 172.854]
    assert list(data.groups) == ["000000", "000001", "000002"]
    # The person wears a white shirt and black trousers in front of a wall: the box differs from its surroundings.
    assert batch.boxes is not None
    x0, y0, x1, y1 = batch.boxes[0].round().astype(int)
    assert batch.images[0, y0:y1, x0:x1].std() > 30


# BDD100K


def bdd_object(**more: Any) -> dict[str, Any]:
    box = {"x1": 100.5, "y1": 200, "x2": 180, "y2": 260}
    return {"category": "car", "attributes": {"occluded": False, "truncated": True}, "box2d": box, **more}


def bdd_frame(*labels: Any, name: str = "a-1.jpg") -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"weather": "snowy", "scene": "highway", "timeofday": "night"},
        "labels": list(labels),
    }


def as_list(content: dict[str, Any], root: Path) -> None:
    write(root / "labels" / "det_20" / "det_train.json", json.dumps([content]))


def as_older_list(content: dict[str, Any], root: Path) -> None:
    write(root / "labels" / "bdd100k_labels_images_train.json", json.dumps([content]))


def as_file_per_frame(content: dict[str, Any], root: Path) -> None:
    own = {**content, "name": "a-1", "frames": [{"timestamp": 10000, "objects": content["labels"]}]}
    del own["labels"]
    write(root / "labels" / "100k" / "train" / "a-1.json", json.dumps(own))


@pytest.mark.parametrize("release", [as_list, as_older_list, as_file_per_frame])
def test_every_release_of_bdd100k_is_read(tmp_path: Path, release: Callable[[dict[str, Any], Path], None]) -> None:
    lane = {"category": "lane", "poly2d": []}
    release(bdd_frame(lane, bdd_object(), bdd_object(attributes={"crowd": True}, category="person")), tmp_path)
    (frame,) = frames("bdd100k", tmp_path)
    assert (frame.id, frame.width, frame.height, frame.split) == ("a-1", 1280, 720, "train")
    assert frame.image == tmp_path / "images" / "100k" / "train" / "a-1.jpg"
    assert frame.conditions == {"weather": "snowy", "scene": "highway", "time_of_day": "night"}
    car, crowd = frame.objects
    assert (car.id, car.kind, car.box) == ("a-1_01", "car", (100.5, 200, 180, 260))
    assert (car.occluded, car.truncated) == (False, True)
    assert crowd.unusable == "a crowd"


def test_frames_of_bdd100k_without_labels_have_no_objects(tmp_path: Path) -> None:
    as_list({"name": "b.jpg", "labels": None}, tmp_path)
    (frame,) = frames("bdd100k", tmp_path)
    assert frame.objects == ()
    assert frame.conditions["weather"] == "undefined"


def test_labels_of_bdd100k_can_be_named(tmp_path: Path) -> None:
    write(tmp_path / "mine.json", json.dumps([bdd_frame(bdd_object())]))
    with pytest.raises(InputError, match="there are no labels of BDD100K below"):
        frames("bdd100k", tmp_path)
    (frame,) = frames("bdd100k", tmp_path, labels={"val": "mine.json"}, images="pictures")
    assert (frame.split, frame.image) == ("val", tmp_path / "pictures" / "val" / "a-1.jpg")


def test_the_tables_of_bdd100k_count_its_weather(tmp_path: Path) -> None:
    content = [bdd_frame(bdd_object(category="bicycle"), name=f"{n}.jpg") for n in range(3)]
    write(tmp_path / "labels" / "det_20" / "det_val.json", json.dumps(content))
    settings = CurationSettings(format="bdd100k", root=str(tmp_path))
    curation = curate(settings, None, dry_run=True)
    assert any(re.fullmatch(r"snowy +0 +0 +3", line) for line in curation.lines())
    assert any(re.fullmatch(r"bike +0 +0 +3", line) for line in curation.lines())


# COCO


PICTURE = {"id": 5, "file_name": "x.jpg", "width": 200, "height": 100}
BOX = {"image_id": 5, "category_id": 3, "bbox": [1, 2, 3, 4]}


def coco(root: Path, **more: Any) -> Path:
    content = {
        "images": [PICTURE],
        "categories": [{"id": 1, "name": "person"}, {"id": 3, "name": "car"}],
        "annotations": [
            {"image_id": 5, "category_id": 3, "bbox": [10, 20.5, 50, 60]},
            {"image_id": 5, "category_id": 1, "bbox": [0, 0, 90, 90], "iscrowd": 1},
            {"image_id": 5, "category_id": 1, "bbox": [0, 0, 9, 9], "attributes": {"occluded": True, "track_id": 4}},
        ],
        **more,
    }
    write(root / "annotations" / "instances_val2017.json", json.dumps(content))
    (root / "val2017").mkdir(exist_ok=True)
    return root


def test_coco_is_read(tmp_path: Path) -> None:
    (frame,) = frames("coco", coco(tmp_path))
    assert (frame.id, frame.width, frame.height, frame.split) == ("val-5", 200, 100, "val")
    assert frame.image == tmp_path / "val2017" / "x.jpg"
    car, crowd, person = frame.objects
    assert (car.id, car.kind, car.box) == ("val-5_00", "car", (10, 20.5, 60, 80.5))
    assert crowd.unusable == "a crowd"
    assert (person.occluded, person.track) == (True, "val-track4")


def test_the_sections_of_coco_may_be_in_any_order_and_errors_name_the_line(tmp_path: Path) -> None:
    coco(tmp_path)
    path = tmp_path / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    first = frames("coco", tmp_path)
    path.write_text(json.dumps(dict(reversed(content.items())), indent=1))
    assert frames("coco", tmp_path) == first
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines).replace("20.5", '"low"'))
    line = next(number for number, text in enumerate(lines, start=1) if "image_id" in text) - 1
    with pytest.raises(InputError, match=rf"line {line}: entry 0 of 'annotations': .* must be a number, not 'low'"):
        frames("coco", tmp_path)


def test_files_and_folders_of_coco_can_be_named(tmp_path: Path) -> None:
    coco(tmp_path)
    named = {"test": "annotations/instances_val2017.json"}
    (frame,) = frames("coco", tmp_path, annotations=named, images={"test": "pictures"})
    assert (frame.split, frame.image) == ("test", tmp_path / "pictures" / "x.jpg")
    with pytest.raises(InputError, match="names no folder for the split 'test'"):
        frames("coco", tmp_path, annotations=named, images={"val": "pictures"})


# VOC

VOC_OBJECT = """<object>
  <name>car</name><truncated>1</truncated><occluded>0</occluded><difficult>0</difficult>
  <bndbox><xmin>1</xmin><ymin>11</ymin><xmax>50</xmax><ymax>60.5</ymax></bndbox>
</object>"""
VOC_FILE = """<annotation>
<filename>x.jpg</filename>
<size><width>200</width><height>100</height><depth>3</depth></size>
{}
</annotation>"""


def voc(root: Path, *objects: str, name: str = "x") -> Path:
    write(root / "Annotations" / f"{name}.xml", VOC_FILE.format("\n".join(objects)))
    return root


def test_voc_counts_pixels_from_one_and_includes_the_last(tmp_path: Path) -> None:
    difficult = VOC_OBJECT.replace("<difficult>0", "<difficult>1")
    (frame,) = frames("voc", voc(tmp_path, VOC_OBJECT, difficult))
    assert (frame.id, frame.width, frame.height, frame.split) == ("x", 200, 100, "")
    assert frame.image == tmp_path / "JPEGImages" / "x.jpg"
    car, other = frame.objects
    assert (car.id, car.kind, car.box) == ("x_00", "car", (0, 10, 50, 60.5))
    assert (car.truncated, car.occluded, car.unusable) == (True, False, "")
    assert other.unusable == "marked as difficult"
    (frame,) = frames("voc", tmp_path, first_pixel=0, difficult=True)
    assert frame.objects[0].box == (1, 11, 51, 61.5)
    assert frame.objects[1].unusable == ""


def test_splits_of_voc_come_from_its_lists(tmp_path: Path) -> None:
    for name in "abc":
        voc(tmp_path, VOC_OBJECT, name=name)
    lists = tmp_path / "ImageSets" / "Main"
    write(lists / "train.txt", "a\n")
    write(lists / "test.txt", "b\n")
    assert [frame.split for frame in frames("voc", tmp_path)] == ["train", "test", "unlisted"]
    selection = select(frames("voc", tmp_path), CurationSettings(format="voc", root="."), Path())
    assert selection.reasons() == {"truncated": 2, "the split 'unlisted' is dropped": 1}
    write(lists / "test.txt", "b\n\na\n")
    with pytest.raises(InputError, match=r"test\.txt, line 3: a is also in train\.txt"):
        frames("voc", tmp_path)


# YOLO


def yolo(root: Path, *lines: str, names: str = "names: [person, car]") -> Path:
    write(root / "data.yaml", names)
    write(root / "labels" / "val" / "x.txt", "\n".join(lines))
    draw(root / "images" / "val" / "x.png")
    return root


@pytest.mark.parametrize("names", ["names: [person, car]", "names: {0: person, 1: car}"])
def test_yolo_is_read(tmp_path: Path, names: str) -> None:
    (frame,) = frames("yolo", yolo(tmp_path, "1 0.5 0.5 0.25 0.5", names=names))
    assert (frame.id, frame.width, frame.height, frame.split) == ("val/x", 200, 100, "val")
    (car,) = frame.objects
    assert (car.id, car.kind, car.box) == ("val/x_00", "car", (75, 25, 125, 75))


def test_an_empty_file_of_yolo_is_an_image_without_objects(tmp_path: Path) -> None:
    assert frames("yolo", yolo(tmp_path))[0].objects == ()


# Malformed annotations: file and line


def bdd_text(text: str) -> Callable[[Path], Path]:
    return lambda root: write(root / "labels" / "det_20" / "det_val.json", text).parents[2]


def bdd_lines(*elements: dict[str, Any]) -> Callable[[Path], Path]:
    """A file in which the first frame begins in line 2, the second in line 3, and so on."""
    return bdd_text("[\n" + ",\n".join(json.dumps(element) for element in elements) + "\n]\n")


GOOD_FRAME = bdd_frame(bdd_object())

MALFORMED: list[tuple[str, Callable[[Path], Path], str]] = [
    (
        "kitti",
        lambda root: kitti(root, KITTI_CAR, "Car 0 0"),
        "000007.txt, line 2: there are 3 values where",
    ),
    ("kitti", lambda root: kitti(root, "", KITTI_CAR.replace("60", "x")), "line 2: value 7 must be a number, not 'x'"),
    (
        "kitti",
        lambda root: kitti(root, KITTI_CAR.replace("0.00 0", "0.00 7")),
        "line 1: truncated 0.00 and occluded 7",
    ),
    ("kitti", lambda root: kitti(root, KITTI_CAR.replace("10.5", "99")), "line 1: the box 99 20 60 80.25 of object"),
    (
        "kitti",
        lambda root: kitti(root, KITTI_CAR.replace("10.5", "nan")),
        "line 1: value 5 must be a number",
    ),
    ("kitti", lambda root: root, "training/label_2: KITTI keeps its label files there"),
    ("bdd100k", bdd_text('[\n{"name": "a.jpg",}\n]'), "det_val.json, line 2: this is not valid JSON"),
    ("bdd100k", bdd_text('[\n{"name": "a.jpg"}\n{"name": "b.jpg"}]'), "line 3: a comma or ] is expected here"),
    ("bdd100k", bdd_text('\n{"name": "a.jpg"}'), "line 2: a list in [ ] is expected here"),
    ("bdd100k", bdd_text('[{"name": "a.jpg"}]\n x'), "line 2: nothing may follow here, where the JSON has ended"),
    ("bdd100k", bdd_text('[{"name": "a.jpg"},\n]'), "line 2: this is not valid JSON"),
    ("bdd100k", bdd_lines(GOOD_FRAME, {"labels": []}), "line 3: there is no 'name'"),
    ("bdd100k", bdd_lines(GOOD_FRAME, {"name": "../x.jpg"}), "line 3: the name of a frame must be a file name"),
    (
        "bdd100k",
        bdd_lines(GOOD_FRAME, bdd_frame(bdd_object(), bdd_object(box2d={"x1": 1}))),
        "line 3: object 1 of frame a-1.jpg: there is no 'y1'",
    ),
    (
        "bdd100k",
        bdd_lines(bdd_frame(bdd_object(attributes={"occluded": "no"}))),
        "line 2: object 0 of frame a-1.jpg: occluded must be true or false, not 'no'",
    ),
    ("bdd100k", bdd_lines({"name": "a.jpg", "labels": {"a": 1}}), "line 2: the labels of frame a.jpg must be a list"),
    ("bdd100k", bdd_lines(bdd_frame({"category": "car"})), "line 2: object 0 of frame a-1.jpg: there is no 'box2d'"),
    (
        "bdd100k",
        bdd_lines(bdd_frame("car")),
        "line 2: object 0 of frame a-1.jpg: an object must be an object with names and values, not 'car'",
    ),
    ("bdd100k", bdd_text("[3]"), "line 1: a frame must be an object with names and values, not 3"),
    ("bdd100k", bdd_lines(bdd_frame(bdd_object(category=3))), "category must be a text, not 3"),
    (
        "coco",
        lambda root: write(root / "annotations" / "instances_val.json", '{"images":\n [}').parents[1],
        "instances_val.json, line 2: this is not valid JSON",
    ),
    ("coco", lambda root: coco(root, images=3), "instances_val2017.json, line 1: a list in [ ] is expected here"),
    (
        "coco",
        lambda root: coco(root, annotations=[{"image_id": 5, "category_id": 3, "bbox": [1, 2, 3]}]),
        "entry 0 of 'annotations': bbox must be four numbers",
    ),
    (
        "coco",
        lambda root: coco(root, annotations=[{"image_id": 6, "category_id": 3, "bbox": [1, 2, 3, 4]}]),
        "entry 0 of 'annotations': there is no image 6",
    ),
    (
        "coco",
        lambda root: coco(root, annotations=[{"image_id": 5, "category_id": 3, "bbox": [1, 2, -3, 4]}]),
        "line 1: entry 0 of 'annotations': bbox [1, 2, -3, 4] has a negative width or height: COCO writes x, y, width,",
    ),
    ("coco", lambda root: coco(root, images=[{"id": 5}]), "entry 0 of 'images': there is no 'file_name'"),
    ("coco", lambda root: coco(root, images=[PICTURE | {"width": "x"}]), "entry 0 of 'images': width must be a number"),
    ("coco", lambda root: coco(root, images=[PICTURE | {"width": 9.5}]), "width must be a whole number, not 9.5"),
    ("coco", lambda root: coco(root, images=[PICTURE | {"file_name": 3}]), "file_name must be a text, not 3"),
    ("coco", lambda root: coco(root, images=[PICTURE, PICTURE]), "entry 1 of 'images': the id 5 is used twice"),
    ("coco", lambda root: coco(root, categories=[{"id": 1, "name": None}]), "name must be a text, not None"),
    ("coco", lambda root: coco(root, annotations=[BOX | {"iscrowd": "0"}]), "iscrowd must be true or false, not '0'"),
    (
        "coco",
        lambda root: coco(root, annotations=[BOX | {"attributes": {"occluded": "no"}}]),
        "occluded must be true or false, not 'no'",
    ),
    ("coco", lambda root: coco(root, annotations=[BOX | {"attributes": "x"}]), "attributes must be an object with"),
    (
        "coco",
        lambda root: coco(root, annotations=[BOX, BOX | {"category_id": 7}]),
        "line 1: entry 1 of 'annotations': there is no category 7",
    ),
    ("coco", lambda root: coco(root, categories=[[1]]), "entry 0 of 'categories': an entry must be an object"),
    (
        "voc",
        lambda root: voc(root, VOC_OBJECT.replace("</name>", "")),
        "x.xml, line 7: this is not valid XML (mis",
    ),
    ("voc", lambda root: voc(root, VOC_OBJECT, VOC_OBJECT.replace("xmax", "xmix")), "line 8: <bndbox> has no <xmax>"),
    ("voc", lambda root: voc(root, VOC_OBJECT.replace("60.5", "?")), "line 4: ymax must be a number, not '?'"),
    (
        "voc",
        lambda root: voc(root, VOC_OBJECT.replace("<truncated>1", "<truncated>2")),
        "line 4: truncated must be 0",
    ),
    (
        "voc",
        lambda root: write(root / "Annotations" / "x.xml", VOC_FILE.replace("200", "?").format("")).parents[1],
        "x.xml, line 3: width must be a number, not '?'",
    ),
    ("voc", lambda root: voc(root, "<size/>"), "line 1: <annotation> has 2 <size>, where one is expected"),
    (
        "voc",
        lambda root: write(root / "Annotations" / "x.xml", "<!DOCTYPE a [<!ENTITY b 'c'>]>\n<a/>").parents[1],
        "x.xml, line 1: a DOCTYPE is not allowed",
    ),
    (
        "yolo",
        lambda root: yolo(root, "1 0.5 0.5 0.25 0.5", "0 0.5 0.5"),
        "x.txt, line 2: there are 3 values",
    ),
    ("yolo", lambda root: yolo(root, "2 0.5 0.5 0.2 0.2"), "line 1: the class '2' is not a number from 0 to 1"),
    ("yolo", lambda root: yolo(root, "1 75 25 50 50"), "line 1: cx cy width height must be shares of the image"),
    ("yolo", lambda root: yolo(root, names="nc: 3"), "data.yaml has no `names:` with a list of class names"),
]


@pytest.mark.parametrize(
    ("name", "make", "message"), MALFORMED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_malformed_annotations_get_one_sentence_with_file_and_line(
    tmp_path: Path, name: str, make: Callable[[Path], Path], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        frames(name, make(tmp_path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_format_has_a_map_of_splits_to_ours() -> None:
    for name in READERS:
        complete = CurationSettings(format=name, root=".").complete()
        assert complete.splits
