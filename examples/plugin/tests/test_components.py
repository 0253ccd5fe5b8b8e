"""What each component promises, on a few built-in signs: copy the tests together with the component."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from roadworthy_example import centroids, glare, negative, sharpness, sheets, worst_recall
from roadworthy_example.box_list import read_box_list

import roadworthy as rw
from roadworthy.core.random import Streams
from roadworthy.data import Opening


@pytest.fixture(scope="module")
def signs():
    return rw.open_dataset({"builtin": "signs", "n": 140, "size": 32})


def test_the_shift_brightens_and_does_not_depend_on_the_batch(signs):
    batch = signs.batch(slice(0, 8))
    shift = glare.Glare(strength=0.5)
    streams = Streams(0, "glare")
    brighter = shift(batch, streams).images
    assert (brighter >= batch.images).all()
    assert brighter.mean() > batch.images.mean()
    assert (shift(batch.take([3]), streams).images[0] == brighter[3]).all()


def test_the_metric_is_the_recall_of_the_worst_class():
    answers = SimpleNamespace(num_classes=2, label=np.array([0, 0, 1, 1]), correct=np.array([1, 1, 1, 0], bool))
    assert worst_recall.worst_recall.of_answers(answers, np.ones((1, 4))).tolist() == [0.5]


def test_the_monitor_keeps_the_promises_of_every_monitor():
    rw.check_monitor(sharpness.Sharpness)


def test_the_outliers_are_negatives(signs):
    made = negative.Negative().make(signs, seed=0)
    assert (made.batch([5]).images == 255 - signs.batch([5]).images).all()


def test_the_model_recognises_mean_images(signs, tmp_path):
    images, labels = signs.batch(slice(None)).images, signs.labels
    means = np.stack([images[labels == label].mean(axis=0) for label in range(len(signs.class_names))])
    np.savez(tmp_path / "means.npz", means=means, class_names=np.array(signs.class_names))
    model = rw.load_model({"centroids": "means.npz", "spread": 1.0}, base=tmp_path)
    assert (model.answer(signs.batch(slice(None)), 8).probabilities.argmax(axis=1) == labels).mean() > 0.5
    with pytest.raises(rw.InputError, match="there is no file"):
        centroids.load_centroids("absent.npz", base=tmp_path)


def test_the_data_are_the_tiles_of_the_sheets(tmp_path):
    tiles = np.random.default_rng(0).integers(0, 256, (2, 6, 16, 16, 3), dtype=np.uint8)
    for name, own in zip(("stop", "yield"), tiles, strict=True):
        sheet = own.reshape(2, 3, 16, 16, 3).swapaxes(1, 2).reshape(32, 48, 3)
        cv2.imwrite(str(tmp_path / f"{name}.png"), sheet[..., ::-1])
    data = rw.open_dataset({"sheets": str(tmp_path), "side": 16})
    assert data.class_names == ("stop", "yield")
    assert (data.batch(slice(None)).images == tiles.reshape(-1, 16, 16, 3)).all()
    with pytest.raises(rw.InputError, match="not a sheet of tiles of 20 pixels"):
        sheets.open_sheets(str(tmp_path), Opening(), side=20)


def test_the_frames_have_their_boxes(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((40, 60, 3), np.uint8))
    (tmp_path / "boxes.csv").write_text("image,kind,x0,y0,x1,y1\na.png,car,1,2,30,20\na.png,bicycle,5,5,9,9\n")
    (frame,) = read_box_list(tmp_path)
    assert (frame.width, frame.height) == (60, 40)
    assert [(thing.kind, thing.box) for thing in frame.objects] == [
        ("car", (1.0, 2.0, 30.0, 20.0)),
        ("bicycle", (5.0, 5.0, 9.0, 9.0)),
    ]
