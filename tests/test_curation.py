"""Crops with one main object: the cut-out, every rule on its own, what is written, and the command."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import call, call_main
from roadworthy.cli import interrupts
from roadworthy.core.errors import InputError
from roadworthy.data import open_dataset
from roadworthy.data.curation import AnnotatedObject, Curation, CurationSettings, Frame, curate, read_settings
from roadworthy.data.curation.cutouts import Cutout, area, clipped, random_cutout, union_area
from roadworthy.data.curation.frames import Box, SplitMap
from roadworthy.data.curation.selection import Selection, select
from roadworthy.data.curation.tables import class_counts, weather_counts

WIDTH, HEIGHT = 640, 480
EVERY: SplitMap = {"": "test"}


def frame(*objects: AnnotatedObject, name: str = "f", **more: Any) -> Frame:
    return Frame(name, Path("f.png"), WIDTH, HEIGHT, objects, **more)


def thing(name: str = "f_00", kind: str = "car", box: Box = (200, 200, 260, 240), **more: Any) -> AnnotatedObject:
    return AnnotatedObject(name, kind, box, **more)


def chosen(*frames: Frame, **more: Any) -> Selection:
    given_settings: dict[str, Any] = {"format": "coco", "root": "root", "splits": EVERY, **more}
    return select(frames, CurationSettings(**given_settings), Path("root"))


def reason(*frames: Frame, **more: Any) -> str:
    """Why the one object that is dropped was dropped."""
    selection = chosen(*frames, **more)
    assert len(selection.dropped) == 1, selection.dropped
    return selection.dropped[0].reason


# The cut-out


@st.composite
def boxes_in_frames(draw: st.DrawFn) -> tuple[Box, int, int]:
    width, height = draw(st.integers(32, 800)), draw(st.integers(32, 800))
    x0, y0 = draw(st.floats(0, width - 2)), draw(st.floats(0, height - 2))
    return (x0, y0, draw(st.floats(x0 + 1, width)), draw(st.floats(y0 + 1, height))), width, height


@settings(max_examples=150, deadline=None)
@given(boxes_in_frames(), st.integers(0, 2**32), st.floats(0, 3), st.floats(1, 4))
def test_a_cutout_holds_the_object_and_lies_in_the_frame(
    placed: tuple[Box, int, int], seed: int, shift: float, largest: float
) -> None:
    box, width, height = placed
    cutout = random_cutout(box, width, height, np.random.default_rng(seed), shift=shift, zoom=(1.0, largest))
    if cutout is None:
        longer = max(math.ceil(box[2]) - math.floor(box[0]), math.ceil(box[3]) - math.floor(box[1]))
        assert longer > min(width, height)
        return
    x0, y0, x1, y1 = cutout.box
    assert x1 - x0 == y1 - y0 == cutout.side
    assert x0 <= box[0]
    assert y0 <= box[1]
    assert box[2] <= x1
    assert box[3] <= y1
    assert x0 >= 0
    assert y0 >= 0
    assert x1 <= width
    assert y1 <= height


def test_far_from_the_edges_the_cutout_is_the_square_around_the_moved_centre() -> None:
    class Drawn:
        """A generator that gives the angle 0, half of the largest shift and the factor 1.5."""

        def uniform(self, low: float, high: float) -> float:
            return {2 * math.pi: 0.0, 0.5: 0.25, 2.0: 1.5}[high]

    drawn: Any = Drawn()
    # The centre (320, 240) moves by a quarter of 80 to the right; the right edge is 20 away, the left one 60.
    cutout = random_cutout((280, 220, 360, 260), WIDTH, HEIGHT, drawn, shift=0.5, zoom=(1.0, 2.0))
    assert cutout == Cutout(x0=340 - 90, y0=240 - 90, side=180)


def test_directions_are_even_and_sizes_fill_the_range() -> None:
    rng = np.random.default_rng(0)
    box = (300.0, 220.0, 340.0, 260.0)
    cutouts = [random_cutout(box, WIDTH, HEIGHT, rng, shift=0.5, zoom=(1.0, 2.0)) for _ in range(4000)]
    centres = np.array([[c.x0 + c.side / 2 - 320, c.y0 + c.side / 2 - 240] for c in cutouts if c])
    sides = np.array([c.side for c in cutouts if c])
    assert np.abs(centres.mean(axis=0)).max() < 0.5
    assert np.hypot(*centres.T).max() <= 21
    assert sides.min() <= 42
    assert 140 < sides.max() <= 160


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 12)] * 4), max_size=6))
def test_the_area_of_a_union_counts_every_pixel_once(corners: list[tuple[int, int, int, int]]) -> None:
    boxes = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners]
    grid = np.zeros((12, 12), bool)
    for x0, y0, x1, y1 in boxes:
        grid[y0:y1, x0:x1] = True
    assert union_area(boxes) == grid.sum()


# Rules


def test_an_object_without_fault_is_chosen() -> None:
    selection = chosen(frame(thing()))
    assert [crop.object.id for crop in selection.crops] == ["f_00"]
    assert selection.dropped == []
    assert (selection.frames, selection.objects) == (1, 1)


def test_objects_under_thirty_pixels_wide_are_dropped() -> None:
    assert reason(frame(thing(box=(0, 0, 29.9, 100)))) == "less than 30 pixels wide"
    assert len(chosen(frame(thing(box=(0, 0, 30, 5)))).crops) == 1
    assert len(chosen(frame(thing(box=(0, 0, 10, 5))), min_width=10).crops) == 1
    # What counts is the width inside the frame.
    assert reason(frame(thing(box=(-20, 0, 15, 100)))) == "less than 30 pixels wide"


@pytest.mark.parametrize("hidden", ["occluded", "truncated"])
def test_occluded_and_truncated_objects_are_dropped_except_some_kinds(hidden: str) -> None:
    flag: dict[str, Any] = {hidden: True}
    assert reason(frame(thing(**flag))) == hidden
    for kind in ("person", "pedestrian", "bicycle"):
        assert len(chosen(frame(thing(kind=kind, **flag))).crops) == 1
    assert len(chosen(frame(thing(**flag)), keep_hidden=["car"]).crops) == 1
    assert reason(frame(thing(kind="bicycle", **flag)), keep_hidden=[]) == hidden


def test_other_objects_may_cover_a_third_of_the_main_object() -> None:
    main = thing(box=(200, 200, 260, 260))
    exact: dict[str, Any] = {"shift": 0, "zoom": (1, 1), "drop": ["sign"]}
    third = thing("f_01", "sign", (200, 200, 220, 260))
    assert [crop.object.id for crop in chosen(frame(main, third), **exact).crops] == ["f_00"]
    wider = thing("f_01", "sign", (200, 200, 220.1, 260))
    selection = chosen(frame(main, wider), **exact)
    assert next(row.reason for row in selection.dropped) == "other objects in the cut-out are too large"
    assert len(chosen(frame(main, wider), most_others=0.5, **exact).crops) == 1


def test_of_other_objects_only_what_lies_in_the_cutout_counts() -> None:
    main, wide = thing(box=(200, 200, 260, 260)), thing("f_01", "sign", (245, 200, 600, 260))
    exact: dict[str, Any] = {"shift": 0, "zoom": (1, 1), "drop": ["sign"]}
    assert len(chosen(frame(main, wide), **exact).crops) == 1
    assert len(chosen(frame(main, wide), **(exact | {"zoom": (2, 2)})).crops) == 0


def test_other_objects_count_together_or_one_by_one() -> None:
    main = thing(box=(200, 200, 260, 260))
    first, second = thing("f_01", "sign", (200, 200, 215, 260)), thing("f_02", "sign", (245, 200, 260, 260))
    exact: dict[str, Any] = {"shift": 0, "zoom": (1, 1), "drop": ["sign"]}
    assert len(chosen(frame(main, first, second), **exact).crops) == 0
    assert len(chosen(frame(main, first, second), others="each", **exact).crops) == 1
    twice = thing("f_02", "sign", (200, 200, 215, 260))
    assert len(chosen(frame(main, first, twice), **exact).crops) == 1


def test_regions_and_dropped_kinds_still_count_as_other_objects() -> None:
    main = thing(box=(200, 200, 260, 260))
    crowd = thing("f_01", "car", (200, 200, 260, 260), unusable="a crowd")
    selection = chosen(frame(main, crowd))
    assert [row.reason for row in selection.dropped] == ["other objects in the cut-out are too large", "a crowd"]


def test_classes_are_merged_and_dropped_by_the_map() -> None:
    objects = [
        thing(f"{kind}_00", kind, (100, 100, 140, 140)) for kind in ("bicycle", "motorcycle", "rider", "train", "bus")
    ]
    frames = [frame(one, name=one.kind, split="val") for one in objects]
    selection = select(frames, CurationSettings(format="bdd100k", root="."), Path())
    assert {crop.object.kind: crop.label for crop in selection.crops} == {
        **{"bicycle": "bike", "motorcycle": "bike", "bus": "bus"}
    }
    assert selection.reasons() == {"the class 'rider' is dropped": 1, "the class 'train' is dropped": 1}
    assert selection.class_names == ("traffic sign", "traffic light", "car", "truck", "pedestrian", "bus", "bike")


def test_a_map_of_ones_own_replaces_that_of_the_format() -> None:
    objects = [thing("a", "train"), thing("b", "rider")]
    frames = [frame(one, name=one.id, split="val") for one in objects]
    own = CurationSettings(format="bdd100k", root=".", classes={"vehicle": ["train"], "car": "car"})
    selection = select(frames, own, Path())
    assert [(crop.object.id, crop.label) for crop in selection.crops] == [("a", "vehicle")]
    assert selection.reasons() == {"the class 'rider' is dropped": 1}
    with pytest.raises(InputError, match="no object is annotated as 'trian', which `classes:` names"):
        select(frames, own.model_copy(update={"classes": {"vehicle": ("trian",)}}), Path())


def test_the_validation_frames_of_bdd_are_the_test_data_and_training_frames_are_divided_by_frame() -> None:
    frames = [
        frame(thing(f"{n}_00"), thing(f"{n}_01", box=(500, 20, 560, 60)), name=str(n), split="train")
        for n in range(400)
    ]
    frames += [frame(thing(f"v{n}_00"), name=f"v{n}", split="val") for n in range(5)]
    selection = select(frames, CurationSettings(format="bdd100k", root="."), Path())
    splits = {crop.object.id: crop.split for crop in selection.crops}
    assert all((splits[name] == "test") == name.startswith("v") for name in splits)
    assert all(splits[f"{n}_00"] == splits[f"{n}_01"] for n in range(400) if {f"{n}_00", f"{n}_01"} <= set(splits))
    share = sum(split == "validation" for split in splits.values()) / len(splits)
    assert 0.14 < share < 0.26


def test_frames_of_a_sequence_stay_in_one_split() -> None:
    frames = [frame(thing(f"{n}_00"), name=str(n), split="train", sequence=f"drive {n % 7}") for n in range(70)]
    selection = select(frames, CurationSettings(format="bdd100k", root="."), Path())
    assert all(len({c.split for c in selection.crops if c.frame.sequence == f"drive {n}"}) == 1 for n in range(7))


def test_a_split_is_dropped_by_null_and_an_unknown_one_is_an_error() -> None:
    assert reason(frame(thing(), split="extra"), splits={"extra": None}) == "the split 'extra' is dropped"
    with pytest.raises(InputError, match="split 'extra', of which the settings say nothing"):
        chosen(frame(thing(), split="extra"))


def test_caps_hold_per_class_and_split_and_the_choice_is_by_id_alone() -> None:
    frames = [frame(thing(f"{n:03d}", "car" if n % 2 else "bus"), name=f"f{n}") for n in range(40)]
    selection = chosen(*frames, caps={"test": 5})
    labels = [crop.label for crop in selection.crops]
    assert (labels.count("car"), labels.count("bus")) == (5, 5)
    assert selection.reasons() == {"beyond the cap of 5 images per class in test": 30}
    again = chosen(*reversed(frames), caps={"test": 5})
    assert [crop.object.id for crop in again.crops] == [crop.object.id for crop in selection.crops]
    more = chosen(*frames, caps={"test": 9})
    assert {crop.object.id for crop in selection.crops} < {crop.object.id for crop in more.crops}


def test_an_object_that_no_square_holds_is_dropped() -> None:
    assert reason(frame(thing(box=(10, 10, 600, 60)))) == "no square in the frame holds the object"
    assert reason(frame(thing(box=(-50, 10, -10, 60)))) == "the box has no area inside the frame"


def test_rejected_ids_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("f_00\n\n")
    (tmp_path / "table.csv").write_text("id,why\nf_00,blurred\n")
    for name in ("plain.txt", "table.csv"):
        assert reason(frame(thing()), rejected=str(tmp_path / name)) == "rejected by hand"
    (tmp_path / "plain.txt").write_text("f_00\nf_07\n")
    with pytest.raises(InputError, match=r"rejected ids .*plain.txt name objects that are not annotated: 'f_07'"):
        chosen(frame(thing()), rejected=str(tmp_path / "plain.txt"))


def test_corrected_boxes_replace_those_of_the_annotations(tmp_path: Path) -> None:
    path = tmp_path / "corrected.csv"
    path.write_text("id,x0,y0,x1,y1\nf_00,10,20,110,90\n")
    (crop,) = chosen(frame(thing()), corrected=str(path)).crops
    assert crop.box == (10, 20, 110, 90)
    # A correction also counts where the object is another one.
    path.write_text("id,x0,y0,x1,y1\nf_01,500,400,540,440\n")
    beside = thing("f_01", "sign", (200, 200, 260, 240))
    both = chosen(frame(thing(), beside), corrected=str(path), zoom=(1, 1), shift=0)
    assert len(both.crops) == 2


def corrections(folder: Path, *rows: str) -> str:
    path = folder / "corrected.csv"
    path.write_text("\n".join(["id,x0,y0,x1,y1", *rows]))
    return str(path)


def test_an_unusable_object_with_a_corrected_box_is_used(tmp_path: Path) -> None:
    outside = thing(box=(0, 0, 0, 0), unusable="behind the camera")
    assert reason(frame(outside)) == "behind the camera"
    (crop,) = chosen(frame(outside), corrected=corrections(tmp_path, "f_00, 10, 20, 110, 90")).crops
    assert (crop.object.box, crop.object.unusable) == ((10, 20, 110, 90), "")
    # The correction of another object changes nothing.
    both = frame(outside, thing("f_01", box=(400, 300, 460, 360)))
    selection = chosen(both, corrected=corrections(tmp_path, "f_01,400,300,450,360"))
    assert [row.reason for row in selection.dropped] == ["behind the camera"]


@pytest.mark.parametrize(
    ("box", "truncated"),
    [
        ("1,1,100,90", False),
        ("0,1,100,90", True),
        ("1,0,100,90", True),
        ("540,1,640,90", True),
        ("540,400,639.5,479.5", False),
        ("540,400,639,480", True),
        ("-5,-5,100,90", True),
    ],
)
def test_whether_an_object_is_truncated_follows_from_its_corrected_box(
    tmp_path: Path, box: str, truncated: bool
) -> None:
    path = corrections(tmp_path, f"f_00,{box}")
    for annotated in (thing(truncated=True), thing(truncated=False)):
        if truncated:
            assert reason(frame(annotated), corrected=path) == "truncated"
        (crop,) = chosen(frame(annotated), corrected=path, keep_hidden=["car"]).crops
        assert crop.object.truncated is truncated


def test_a_corrected_box_changes_neither_occlusion_nor_class_nor_a_rejection(tmp_path: Path) -> None:
    path = corrections(tmp_path, "f_00,10,20,110,90")
    assert reason(frame(thing(occluded=True)), corrected=path) == "occluded"
    assert reason(frame(thing()), corrected=path, drop=["car"]) == "the class 'car' is dropped"
    (tmp_path / "rejected.txt").write_text("f_00\n")
    assert reason(frame(thing()), corrected=path, rejected=str(tmp_path / "rejected.txt")) == "rejected by hand"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,x0,y0,x1,y1\nf_09,1,2,3,4\n", "name objects that are not annotated: 'f_09'"),
        ("f_00,1,2,3,4\n", "must begin with the line id,x0,y0,x1,y1"),
        ("id,x0,y0,x1,y1\nf_00,1,2,3\n", "line 2: there are 4 values"),
        ("id,x0,y0,x1,y1\nf_00,1,2,x,4\n", "line 2: x1 must be a number, not 'x'"),
        ("id,x0,y0,x1,y1\nf_00,5,2,3,4\n", "line 2: the box ends before it begins"),
        ("id,x0,y0,x1,y1\nf_00,1,2,3,4\nf_00,1,2,3,4\n", "line 3: the id 'f_00' stands there twice"),
    ],
)
def test_mistakes_in_corrected_boxes_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "corrected.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        chosen(frame(thing()), corrected=str(path))


@pytest.mark.parametrize("name", ["classes", "drop", "keep_hidden"])
def test_kinds_that_no_object_has_are_refused(name: str) -> None:
    given_kinds: dict[str, Any] = {name: {"car": ["car", "cra"]} if name == "classes" else ["cra"]}
    with pytest.raises(InputError, match=f"no object is annotated as 'cra', which `{name}:` names; .* 'car'"):
        chosen(frame(thing()), **given_kinds)


@pytest.mark.parametrize("kind", ["a\nb", " car"])
def test_a_class_that_is_no_line_of_text_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="cannot stand on a line of its own: map it to a name under `classes:`"):
        chosen(frame(thing(kind=kind)))
    assert len(chosen(frame(thing(kind=kind)), classes={"car": [kind]}).crops) == 1


def test_ids_must_be_unique() -> None:
    with pytest.raises(InputError, match="two objects have the id 'f_00'"):
        chosen(frame(thing(), thing()))
    with pytest.raises(InputError, match="two frames have the id 'f'"):
        chosen(frame(thing()), frame(thing("g_00")))


def test_a_group_is_the_track_or_else_the_frame() -> None:
    selection = chosen(frame(thing(), thing("f_01", box=(500, 20, 560, 60), track="t7")))
    assert [crop.group for crop in selection.crops] == ["f", "t7"]


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_never_changes_a_crop(rng: random.Random) -> None:
    objects = [thing(f"f{n}_{m}", box=(80 * m, 60, 80 * m + 60, 110)) for n in range(6) for m in range(3)]
    frames = [frame(*objects[3 * n : 3 * n + 3], name=f"f{n}") for n in range(6)]
    expected = {crop.object.id: (crop.cutout, crop.split, crop.rank) for crop in chosen(*frames).crops}
    shuffled = [
        frame(*rng.sample(one.objects, 3), name=one.id) for one in rng.sample(frames, rng.randint(1, len(frames)))
    ]
    for crop in chosen(*shuffled).crops:
        assert expected[crop.object.id] == (crop.cutout, crop.split, crop.rank)


def test_another_seed_gives_other_crops() -> None:
    first, second = (chosen(frame(thing()), seed=seed).crops[0].cutout for seed in (0, 1))
    assert first != second


def test_tables_count_images_per_class_and_weather() -> None:
    frames = [
        frame(thing(f"{n}_00"), name=str(n), conditions={"weather": "snow" if n < 3 else "clear"}) for n in range(5)
    ]
    selection = chosen(*frames)
    assert class_counts(selection) == [["class", "train", "validation", "test"], ["car", "0", "0", "5"]]
    assert weather_counts(selection)[1:] == [["clear", "0", "0", "2"], ["snow", "0", "0", "3"]]


# What is written


def drawn_set(root: Path, count: int = 4) -> Path:
    """A YOLO set of grey frames with a filled red rectangle and a small blue one each."""
    (root / "images").mkdir(parents=True)
    (root / "labels").mkdir()
    (root / "classes.txt").write_text("red box\nblue\n")
    for n in range(count):
        picture = np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
        x0, y0 = 40 + 90 * n, 60 + 70 * n
        picture[y0 : y0 + 64, x0 : x0 + 96] = (0, 0, 255)
        picture[400:450, 10:45] = (255, 0, 0)
        cv2.imwrite(str(root / "images" / f"{n}.png"), picture)
        shares = (x0 + 48) / WIDTH, (y0 + 32) / HEIGHT, 96 / WIDTH, 64 / HEIGHT
        blue = 27.5 / WIDTH, 425 / HEIGHT, 35 / WIDTH, 50 / HEIGHT
        lines = [" ".join(["0", *map(repr, shares)]), " ".join(["1", *map(repr, blue)])]
        (root / "labels" / f"{n}.txt").write_text("\n".join(lines))
    return root


def run(root: Path, out: Path, **more: Any) -> Curation:
    workers = more.pop("workers", None)
    return curate(CurationSettings(format="yolo", root=str(root), **more), out, workers=workers)


def everything(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("size", [64, 256, 300])
def test_a_box_after_crop_and_scale_lands_on_the_object(tmp_path: Path, size: int) -> None:
    run(drawn_set(tmp_path / "set"), tmp_path / "out", size=size)
    data = open_dataset(tmp_path / "out" / "test.csv", classes=tmp_path / "out" / "classes.txt")
    batch = data.batch(range(len(data)))
    assert batch.images.shape[1:] == (size, size, 3)
    assert batch.boxes is not None
    for image, label, box in zip(batch.images.astype(int), batch.labels, batch.boxes, strict=True):
        wanted, other = (0, 2) if data.class_names[label] == "red box" else (2, 0)
        rows, columns = np.nonzero((image[..., wanted] - image[..., other]) > 127)
        drawn = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert np.abs(np.array(drawn) - box).max() <= 1
    assert set(np.asarray(data.class_names)[batch.labels]) == {"red box", "blue"}


def test_the_manifest_says_where_each_crop_lay(tmp_path: Path) -> None:
    run(drawn_set(tmp_path / "set", 1), tmp_path / "out", size=64)
    with (tmp_path / "out" / "test.csv").open() as file:
        rows = list(csv.DictReader(file))
    row = rows[0]
    assert (row["label"], row["id"], row["group"], row["frame"]) == ("red box", "0_00", "0", "0")
    assert (row["frame_width"], row["frame_height"]) == ("640", "480")
    x0, y0, x1, y1 = (int(row[f"crop_{corner}"]) for corner in ("x0", "y0", "x1", "y1"))
    back = [float(row[c]) * (x1 - x0) / 64 + o for c, o in zip(("x0", "y0", "x1", "y1"), (x0, y0) * 2, strict=True)]
    assert back == pytest.approx([40, 60, 136, 124], abs=0.01)
    picture = cv2.imread(str(tmp_path / "set" / "images" / "0.png"))[y0:y1, x0:x1]
    crop = cv2.imread(str(tmp_path / "out" / row["path"]))
    assert np.abs(cv2.resize(picture, (64, 64), interpolation=cv2.INTER_AREA).astype(int) - crop).max() <= 1
    assert (row["horizon"], row["distance"], row["weather"]) == ("", "", "")


def test_workers_and_repetition_change_no_byte(tmp_path: Path) -> None:
    root = drawn_set(tmp_path / "set")
    run(root, tmp_path / "a", size=48, workers=1)
    run(root, tmp_path / "b", size=48, workers=3)
    first = everything(tmp_path / "a")
    assert first == everything(tmp_path / "b")
    run(root, tmp_path / "a", size=48)
    assert first == everything(tmp_path / "a")
    assert {path.name for path in tmp_path.iterdir()} == {"set", "a", "b"}


def test_the_record_holds_settings_versions_and_counts(tmp_path: Path) -> None:
    run(drawn_set(tmp_path / "set"), tmp_path / "out", size=48, min_width=40)
    record = json.loads((tmp_path / "out" / "curation.json").read_text())
    assert record["settings"]["min_width"] == 40
    assert record["counts"]["objects"] == 8
    assert record["counts"]["splits"] == {"train": 0, "validation": 0, "test": 4}
    assert record["counts"]["dropped"] == {"less than 40 pixels wide": 4}
    assert set(record["versions"]) == {"roadworthy", "numpy", "opencv-python-headless", "pillow"}
    lines = (tmp_path / "out" / "dropped.csv").read_text().splitlines()
    assert lines[:2] == ["id,file,reason", "0_01,images/0.png,less than 40 pixels wide"]
    assert not (tmp_path / "out" / "train.csv").exists()
    sheet = cv2.imread(str(tmp_path / "out" / "contact_sheet.png"))
    assert sheet.shape[0] < sheet.shape[1]


def test_a_folder_of_something_else_is_refused_and_one_of_the_same_curation_replaced(tmp_path: Path) -> None:
    root, out = drawn_set(tmp_path / "set"), tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no curation: name a new folder"):
        run(root, out, size=48)
    (out / "mine.txt").unlink()
    run(root, out, size=48)
    with pytest.raises(InputError, match="holds a curation with another setting of 'size'"):
        run(root, out, size=64)
    (tmp_path / "rejected.txt").write_text("1_00\n")
    run(root, out, size=48, rejected=str(tmp_path / "rejected.txt"))
    assert "1_00" not in (out / "test.csv").read_text()
    assert not (out / "images" / "test" / "red_box" / "1_00.png").exists()


def test_an_error_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    root = drawn_set(tmp_path / "set")
    picture = root / "images" / "3.png"
    picture.write_bytes(picture.read_bytes()[:400])
    with pytest.raises(InputError, match=r"3\.png"):
        run(root, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"set"}


def test_the_earlier_result_stays_where_the_new_one_cannot_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = drawn_set(tmp_path / "set", 1), tmp_path / "out"
    run(root, out, size=48)
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if target == out and "earlier" not in self.name:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    before = everything(out)
    with pytest.raises(KeyboardInterrupt):
        run(root, out, size=48)
    assert everything(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"set", "out"}


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    root = drawn_set(tmp_path / "set", 1)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / f".out.{int(ended.stdout)}.tmp").mkdir()
    (tmp_path / f".out.earlier.{int(ended.stdout)}.tmp").mkdir()
    (tmp_path / f".out.{os.getppid()}.tmp").mkdir()
    run(root, tmp_path / "out", size=48)
    assert {path.name for path in tmp_path.iterdir()} == {"set", "out", f".out.{os.getppid()}.tmp"}


def test_a_picture_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    (tmp_path / "images" / "val").mkdir(parents=True)
    label = {"category": "car", "box2d": {"x1": 100, "y1": 100, "x2": 200, "y2": 180}}
    (tmp_path / "labels" / "bdd100k_labels_images_val.json").write_text(
        json.dumps([{"name": "a.jpg", "labels": [label]}])
    )
    bdd = CurationSettings(format="bdd100k", root=str(tmp_path), options={"images": "images"})
    with pytest.raises(InputError, match=r"1 of 1 images are not there: .*a\.jpg"):
        curate(bdd, tmp_path / "out")
    cv2.imwrite(str(tmp_path / "images" / "val" / "a.jpg"), np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(InputError, match=r"a\.jpg' has 64 x 48 pixels, but its annotations are for 1280 x 720"):
        curate(bdd, tmp_path / "out")


def test_jpeg_and_its_quality(tmp_path: Path) -> None:
    root = drawn_set(tmp_path / "set", 1)
    for quality in (30, 95):
        run(root, tmp_path / str(quality), images="jpeg", quality=quality)
    low, high = (tmp_path / q / "images" / "test" / "red_box" / "0_00.jpg" for q in ("30", "95"))
    assert low.stat().st_size < high.stat().st_size
    with pytest.raises(InputError, match="quality is that of JPEG files"):
        read_settings(None, {"format": "yolo", "root": ".", "quality": 3})


# The command


def test_the_command_writes_and_prints_the_tables(tmp_path: Path) -> None:
    root = drawn_set(tmp_path / "set")
    printed = call("data", "curate", "yolo", root, "--dry-run")
    assert "8 crops of 8 objects in 4 frames" in printed
    assert "red box      0           0     4" in printed
    assert "dry run: nothing was written" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"set"}
    printed = call("data", "curate", "yolo", root, "--out", tmp_path / "out", "--size", 32)
    assert f"the crops are in {tmp_path / 'out'}" in printed
    assert open_dataset(tmp_path / "out" / "test.csv").size == (32, 32)
    assert call("data", "curate", "yolo", root, "--out", tmp_path / "out", "--size", 32, "--quiet") == ""


def test_an_interrupted_curation_does_not_promise_to_continue(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("roadworthy.api.curate_data", interrupted)
    monkeypatch.setattr("roadworthy.api.open_run", interrupted)
    monkeypatch.setattr(interrupts.os, "_exit", sys.exit)
    expected = {
        "data curate yolo set --out out": "put in place as a whole at the end, so the same command starts over",
        "verify run": "run the same command again to continue from here",
    }
    for words, advice in expected.items():
        code, _, said = call_main(words, monkeypatch, capfd)
        assert code == 130
        assert said.startswith("stopped; ")
        assert said.endswith(f"{advice}\n")


def test_settings_come_from_a_file_and_options_win(tmp_path: Path) -> None:
    drawn_set(tmp_path / "set")
    path = tmp_path / "curate.yaml"
    path.write_text("curate: {format: yolo, root: set, size: 32, caps: {test: 1}, drop: [blue]}")
    call("data", "curate", "--settings", path, "--out", tmp_path / "out", "--size", 24)
    record = json.loads((tmp_path / "out" / "curation.json").read_text())
    assert (record["settings"]["size"], record["counts"]["crops"]) == (24, 1)
    assert record["settings"]["root"] == str(tmp_path / "set")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["yolo", "set"], "name it with --out, or count only with --dry-run"),
        (["yollo", "set", "--dry-run"], "unknown format 'yollo': did you mean 'yolo'?"),
        (["yolo", "absent", "--dry-run"], "there is no folder absent with annotations"),
        (["yolo", "set.zip", "--dry-run"], "set.zip is a file: unpack it if it is an archive"),
        (["yolo", "--dry-run"], "no root of the annotations is given"),
        (["yolo", "set", "--dry-run", "--size", "3"], "size: Input should be greater than or equal to 8"),
    ],
)
def test_mistakes_on_the_command_line_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set").mkdir()
    (tmp_path / "set.zip").touch()
    assert message in call("data", "curate", *words, code=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format: yolo", "must hold one key"),
        ("curate: {format: yolo, root: set, caps: {tets: 3}}", "caps are for the splits train, validation, test"),
        ("curate: {format: yolo, root: set, zoom: [2, 1]}", "zoom must be the smallest and the largest factor"),
        ("curate: {format: yolo, root: set, splits: {train: {train: 0.5}}}", "must sum to 1"),
        ("curate: {format: yolo, root: set, classes: {a: [x], b: [x]}}", "'x' stands in two classes"),
        ("curate: {format: yolo, root: set, options: {nams: x}}", "did you mean 'names'"),
        ("curate: {format: yolo, root: set, options: {names: null}}", "yolo option names has no value: write one"),
        ("curate: {format: yolo, root: set, minwidth: 3}", "unknown key 'minwidth': did you mean 'min_width'"),
    ],
)
def test_mistakes_in_settings_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    drawn_set(tmp_path / "set", 1)
    (tmp_path / "curate.yaml").write_text(text)
    assert message in call("data", "curate", "--settings", tmp_path / "curate.yaml", "--dry-run", code=2)


def test_areas_and_parts_of_boxes() -> None:
    assert area((1, 2, 4, 6)) == 12
    assert clipped((0, 0, 5, 5), (5, 0, 9, 9)) is None
    assert union_area([]) == 0
