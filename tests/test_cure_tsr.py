"""CURE-TSR: a folder of crops by their file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from roadworthy.core.errors import InputError
from roadworthy.data import OpenedDataset, open_dataset
from roadworthy.data.cure_tsr import CHALLENGES, SEQUENCES, SIGNS, UNKNOWN_OBJECTS, Crop

NAMES = (
    "Real_Test/ChallengeFree/01_06_00_00_0001.bmp",
    "Real_Test/ChallengeFree/01_01_00_00_0001.bmp",
    "Real_Test/ChallengeFree/01_14_00_00_0010.bmp",
    "Real_Test/ChallengeFree/01_14_00_00_0009.bmp",
    "Real_Test/Rain-3/01_06_09_03_0001.bmp",
    "Real_Test/Rain-5/01_06_09_05_0001.bmp",
    "Real_Test/Haze-1/01_13_12_01_0002.bmp",
    "Unreal_Test/ChallengeFree/02_06_00_00_0001.bmp",
)


@pytest.fixture
def crops(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        path = tmp_path / "CURE-TSR" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 24), (number, 2 * number, 3 * number)).save(path)
    return tmp_path / "CURE-TSR"


def opened(root: Path, **options: Any) -> OpenedDataset:
    return open_dataset({"cure_tsr": str(root), "size": 16, **options})


def test_by_default_the_real_images_without_a_challenge(crops: Path) -> None:
    data = opened(crops)
    assert data.ids == tuple(NAMES[row] for row in (1, 0, 3, 2))
    assert data.class_names == SIGNS
    assert data.labels.tolist() == [0, 5, 13, 13]
    assert data.batch([1]).images[0, 0, 0].tolist() == [0, 0, 0]
    assert data.batch([2]).images[0, 0, 0].tolist() == [3, 6, 9]
    conditions = data.batch([0]).conditions
    assert {name: column.tolist() for name, column in conditions.items()} == {
        "sequence": ["real"],
        "challenge": ["none"],
        "level": [0],
    }
    assert UNKNOWN_OBJECTS in data.notes
    left_out = "1 real images with challenge haze, 2 real images with challenge rain, 1 unreal images with challenge"
    assert any(left_out in note for note in data.notes)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"challenge": 9}, [4, 5]),
        ({"challenge": "rain"}, [4, 5]),
        ({"challenge": "rain", "level": 5}, [5]),
        ({"challenge": "all", "level": 1}, [6]),
        ({"challenge": "all", "sequence": "both"}, list(range(8))),
        ({"sequence": "unreal"}, [7]),
        ({"sequence": "both", "challenge": "none"}, [0, 1, 2, 3, 7]),
    ],
)
def test_sequence_challenge_and_level_choose(crops: Path, options: dict[str, Any], rows: list[int]) -> None:
    assert set(opened(crops, **options).ids) == {NAMES[row] for row in rows}


def test_versions_of_a_crop_share_its_group(crops: Path) -> None:
    data = opened(crops, challenge="all", sequence="both")
    group = dict(zip(data.ids, data.groups, strict=True))
    assert group[NAMES[0]] == group[NAMES[4]] == group[NAMES[5]] == "real/stop/0001"
    assert len({group[name] for name in NAMES}) == 6
    chosen = opened(crops)
    assert len(set(chosen.groups)) == len(chosen)


def test_classes_can_have_the_order_of_a_model(crops: Path) -> None:
    data = opened(crops, classes=sorted(SIGNS))
    assert [data.class_names[label] for label in data.labels] == ["speed limit", "stop", "parking", "parking"]
    with pytest.raises(InputError, match="labels without a class: 'parking'"):
        opened(crops, classes=["stop", "speed limit"])


def test_the_classes_are_those_of_the_built_in_signs() -> None:
    assert open_dataset({"builtin": "signs", "n": 14}).class_names == SIGNS


def test_the_kind_can_stand_before_the_path(crops: Path) -> None:
    assert len(open_dataset(f"cure_tsr:{crops}", size=16)) == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"challenge": 13}, "unknown challenge of CURE-TSR '13'"),
        ({"challenge": True}, "challenge.* True"),
        ({"challenge": "fog"}, "unknown challenge of CURE-TSR 'fog'"),
        ({"challenge": "rain", "level": 6}, "level is a number from 1 to 5, or left out for all, not 6"),
        ({"challenge": "rain", "level": "5"}, "level.* '5'"),
        ({"level": 2}, "level is for images with a challenge"),
        ({"sequence": "reel"}, "unknown sequence of CURE-TSR 'reel': did you mean 'real'"),
        ({"challenge": "snow"}, "holds none of the images asked for; it holds 1 real images with challenge haze, 4"),
        ({"chalenge": 1}, "unknown option of a cure_tsr dataset 'chalenge': did you mean 'challenge'"),
    ],
)
def test_bad_options_get_one_sentence(crops: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        opened(crops, **options)


@pytest.mark.parametrize(
    "name",
    [
        "stop.bmp",
        "01_06_00_00.bmp",
        "1_6_0_0_1.bmp",
        "03_06_00_00_0001.bmp",
        "00_06_00_00_0001.bmp",
        "01_15_00_00_0001.bmp",
        "01_00_00_00_0001.bmp",
        "01_06_13_01_0001.bmp",
        "01_06_09_06_0001.bmp",
        "01_06_00_00_0001_copy.bmp",
        "٠١_06_00_00_0001.bmp",
    ],
)
def test_a_misnamed_image_is_named(crops: Path, name: str) -> None:
    Image.new("RGB", (8, 8)).save(crops / name)
    with pytest.raises(InputError, match=r"1 images in .* are not named as in CURE-TSR") as error:
        opened(crops)
    assert repr(name) in str(error.value)


def test_other_files_are_noted_and_a_missing_or_empty_folder_is_an_error(crops: Path, tmp_path: Path) -> None:
    (crops / "readme.txt").write_text("x")
    assert any("1 .txt" in note for note in opened(crops).notes)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds none of the images asked for; it holds no images"):
        opened(tmp_path / "empty")
    with pytest.raises(InputError, match="there is no folder"):
        opened(tmp_path / "nowhere")


def test_the_fingerprint_follows_the_choice(crops: Path) -> None:
    assert opened(crops).fingerprint() == opened(crops).fingerprint()
    assert opened(crops).fingerprint() != opened(crops, sequence="both").fingerprint()


@given(st.integers(1, 2), st.integers(1, 14), st.integers(0, 12), st.integers(0, 5), st.integers(0, 99_999_999))
def test_every_name_of_the_scheme_is_read(sequence: int, sign: int, challenge: int, level: int, index: int) -> None:
    crop = Crop.of(f"{sequence:02}_{sign:02}_{challenge:02}_{level:02}_{index:04}")
    assert crop == Crop(SEQUENCES[sequence - 1], SIGNS[sign - 1], CHALLENGES[challenge], level, f"{index:04}")


@given(st.text(max_size=24))
def test_no_text_breaks_the_reader_of_names(stem: str) -> None:
    crop = Crop.of(stem)
    assert crop is None or np.array_equal(stem.split("_")[-1], crop.index)
