"""Large arrays of .npz files stay on disk: the same images, fingerprints and errors as those that are read."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roadworthy.core.errors import InputError
from roadworthy.data import open_dataset, rows_on_disk
from roadworthy.data.arrays import ArrayDataset, NpzDataset
from roadworthy.data.rows_on_disk import RowsOnDisk

N = 30
SAVE = {"stored": np.savez, "compressed": np.savez_compressed}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no array so small that it is read."""
    monkeypatch.setenv("ROADWORTHY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rows_on_disk, "IN_MEMORY", 0)
    return tmp_path / "cache" / "arrays"


def arrays(**changes: Any) -> dict[str, Any]:
    """Images, masks and labels of a data set."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (N, 8, 6, 3), dtype=np.uint8)
    masks = generator.integers(0, 3, (N, 8, 6), dtype=np.uint8)
    return {"images": images, "masks": masks, "labels": np.arange(N) % 3} | changes


def npz(folder: Path, kind: str = "stored", **changes: Any) -> Path:
    SAVE[kind](folder / "x.npz", **arrays(**changes))
    return folder / "x.npz"


def in_memory(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(rows_on_disk, "IN_MEMORY", 2**40)
        data = open_dataset(path, **options)
    assert isinstance(data, NpzDataset)
    assert isinstance(data._images, np.ndarray)
    return data


@pytest.mark.parametrize("kind", [*SAVE])
@pytest.mark.parametrize("options", [{}, {"limit": 11}, {"size": "4x4"}], ids=["all", "some", "resized"])
def test_rows_on_disk_are_those_that_would_be_read(
    kind: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = npz(tmp_path, kind)
    data, held = open_dataset(path, **options), in_memory(path, monkeypatch, **options)
    assert isinstance(data, NpzDataset)
    assert isinstance(data._images, RowsOnDisk)
    assert isinstance(data._masks, RowsOnDisk)
    for rows in (slice(0, 7), [5, 2, 3, 4, 4, 0], []):
        here, there = data.batch(rows), held.batch(rows)
        assert np.array_equal(here.images, there.images)
        assert np.array_equal(here.masks, there.masks)
        assert here.masks is not None
        assert here.masks.dtype == np.bool_
    assert data.content([3, 1]) == held.content([3, 1])
    assert data.fingerprint() == held.fingerprint()


@pytest.mark.parametrize("kind", [*SAVE])
def test_grey_images_without_channel(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(tmp_path, kind, images=arrays()["masks"])
    assert open_dataset(path).fingerprint() == in_memory(path, monkeypatch).fingerprint()


def test_batches_are_copies(tmp_path: Path) -> None:
    data = open_dataset(npz(tmp_path))
    data.batch(slice(0, 4)).images[:] = 0
    assert np.array_equal(data.batch([1]).images[0], arrays()["images"][1])


def test_a_compressed_array_is_unpacked_once(tmp_path: Path, cache: Path) -> None:
    path = npz(tmp_path, "compressed")
    open_dataset(path)
    unpacked = sorted(cache.iterdir())
    assert [file.name.partition("-")[2] for file in unpacked] == ["images.npy", "masks.npy"]
    before = [file.stat().st_mtime_ns for file in unpacked]
    (tmp_path / "elsewhere").mkdir()
    open_dataset(path.rename(tmp_path / "elsewhere" / "y.npz"))
    assert [file.stat().st_mtime_ns for file in sorted(cache.iterdir())] == before


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b""])
def test_what_is_damaged_in_the_cache_is_unpacked_anew(
    damage: Callable[[bytes], bytes], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = npz(tmp_path, "compressed")
    open_dataset(path)
    for file in cache.iterdir():
        file.write_bytes(damage(file.read_bytes()))
    assert open_dataset(path).fingerprint() == in_memory(path, monkeypatch).fingerprint()


def test_an_open_data_set_outlives_its_cache(tmp_path: Path, cache: Path) -> None:
    data = open_dataset(npz(tmp_path, "compressed"))
    for file in cache.iterdir():
        file.unlink()
    assert np.array_equal(data.batch(slice(0, N)).images, arrays()["images"])


@pytest.mark.parametrize("refusal", ["read-only", "full"])
def test_a_cache_that_cannot_hold_it_leaves_it_in_memory(
    refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refusal == "full":
        monkeypatch.setattr(rows_on_disk.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    else:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("ROADWORTHY_CACHE", str(tmp_path / "file"))
    path = npz(tmp_path, "compressed")
    with pytest.warns(UserWarning, match=r"images\.npy of x\.npz is held in memory, 0 MB, since it cannot be unpacked"):
        data = open_dataset(path)
    assert data.fingerprint() == in_memory(path, monkeypatch).fingerprint()


@pytest.mark.parametrize("kind", [*SAVE])
def test_a_wrong_check_sum_is_said_as_for_what_is_read(
    kind: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = npz(tmp_path, kind, masks=np.zeros((N, 8, 6), np.uint8))
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("images.npy").header_offset + 400
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    messages = []
    for limit in (0, 2**40):
        monkeypatch.setattr(rows_on_disk, "IN_MEMORY", limit)
        with pytest.raises(InputError, match=r"x\.npz' cannot be read") as caught:
            open_dataset(path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert not [*cache.glob("*images*")]
    assert not [*cache.glob("*.tmp")]


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((N, 3, 8, 8), np.uint8),
        np.zeros((N, 8, 8, 3)),
        np.zeros((N, 8, 8, 3), np.int8),
        np.zeros((N, 0, 8, 3), np.uint8),
        np.zeros(N, np.uint8),
        np.array(["a"] * N, dtype=object),
        np.zeros((2, 8, 8, 3), np.uint8),
    ],
    ids=["channels first", "floats", "signed", "no height", "no pixels", "objects", "too few"],
)
@pytest.mark.parametrize("kind", [*SAVE])
def test_errors_are_those_of_arrays_that_are_read(
    kind: str, images: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = npz(tmp_path, kind, images=images)
    messages = []
    for limit in (0, 2**40):
        monkeypatch.setattr(rows_on_disk, "IN_MEMORY", limit)
        with pytest.raises(InputError) as caught:
            open_dataset(path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_arrays_in_columns_order_are_read(tmp_path: Path) -> None:
    data = open_dataset(npz(tmp_path, images=np.asfortranarray(arrays()["images"])))
    assert isinstance(data, ArrayDataset)
    assert isinstance(data._images, np.ndarray)
    assert np.array_equal(data.batch([3]).images[0], arrays()["images"][3])


def test_a_bomb_is_refused_before_anything_is_unpacked(tmp_path: Path, cache: Path, monkeypatch: Any) -> None:
    large = {"images": np.zeros((N, 64, 64, 3), np.uint8), "masks": np.zeros((N, 64, 64), np.uint8)}
    path = npz(tmp_path, "compressed", **large)
    monkeypatch.setattr("roadworthy.core.validation.MEMORY_SHARE", 2**26)
    with pytest.raises(InputError, match="more than this machine can give"):
        open_dataset(path)
    assert not cache.exists()
    open_dataset(npz(tmp_path, **large))  # it takes what the file has, on disk


@pytest.mark.parametrize("change", ["cut", "rewritten"])
def test_a_file_that_changes_under_a_run_is_said(change: str, tmp_path: Path) -> None:
    path = npz(tmp_path)
    data = open_dataset(path)
    content = path.read_bytes()
    path.write_bytes(content[:300] if change == "cut" else content[::-1])
    with pytest.raises(InputError, match=r"x\.npz' was changed while it was used"):
        data.batch(slice(0, N))


def test_rows_on_disk_can_be_sent_to_another_process(tmp_path: Path) -> None:
    data = open_dataset(npz(tmp_path))
    assert isinstance(data, NpzDataset)
    again = pickle.loads(pickle.dumps(data._images))
    assert np.array_equal(again[np.array([2, 0])], arrays()["images"][[2, 0]])
