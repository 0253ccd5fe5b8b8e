"""Fixtures that many tests share."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ("pytester", "browser")  # pytester: its options must be known from the start
pytest.register_assert_rewrite("commands")  # a helper that asserts: failures show what was compared

ROOT = Path(__file__).parent.parent
collect_ignore = ["interop"]  # programs of `make interop`, some of them for another environment
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("KERAS_BACKEND", "torch")


SLOW_FIRST = (
    *("test_ray", "test_docs", "test_isolation", "test_engine", "test_store_care", "test_od_test", "test_own_networks"),
    *(
        "test_monitors",
        "test_nodes",
        "test_stubborn_models",
        "test_cli",
        "test_ood",
        "test_pixelcnn",
        "test_monitoring",
    ),
    *("test_monitors_in_runs", "test_plugins", "test_python", "test_pages", "test_report", "test_monitor_export"),
    *("test_real_data", "test_pipelines", "test_model_kinds", "test_od_test_gallery", "test_gan", "test_pytest_plugin"),
    *("test_own_metric", "test_golden", "test_compare", "test_rehearsal", "test_damage", "test_dependability"),
    *("test_example_plugin", "test_stores", "test_browser", "test_viewer_browser", "test_full_disk"),
    *("test_http_models", "test_viewer", "test_audit", "test_building", "test_approval", "test_judged_runs"),
)
"""Files of more than 10 seconds: begun first, so that no worker is left with one when the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: index for index, name in enumerate(SLOW_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


gc.disable()  # while tests are collected: nothing of it is garbage


def pytest_collection_finish() -> None:
    """Leave the thousands of tests and all that they import to the end of the process when garbage is searched for.

    A search through all of it takes half a second, and libraries ask for one (statsmodels in every `multipletests`).
    """
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is left in the cache of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROADWORTHY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        yield


IN_PROCESSES_OF_THEIR_OWN = ("test_isolation", "test_example_plugin", "test_found_inputs", "test_ray")
"""Test files whose models are isolated as they are for users; commands that tests start as programs always are."""


@pytest.fixture(autouse=True, scope="module")
def models_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ask models that are code in the process of the test: the bits are the same, and a process takes long to start."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.stem not in IN_PROCESSES_OF_THEIR_OWN and "tests" in request.path.parts:
            import roadworthy.models

            patch.setattr(roadworthy.models, "is_foreign", lambda loader: False)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Ask the disk of no file to keep it through a power cut: that takes longer than to write it.

    Commands that tests start as programs ask; tests of disks that fail put a function of their own in its place.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


DRAWN_ANEW = ("test_signs", "test_traffic_scenes")
"""Test files that are about how the built-in sets are drawn."""
_DRAWN: dict[tuple[Any, ...], tuple[Any, ...]] = {}


@pytest.fixture(autouse=True, scope="module")
def pictures_are_drawn_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep every picture of a built-in set for all tests of a process: many studies are about the same 150 signs."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.stem not in DRAWN_ANEW and "tests" in request.path.parts:
            from roadworthy.data import BuiltinDataset

            patch.setattr(BuiltinDataset, "_draw", functools.partialmethod(_draw_once, BuiltinDataset._draw))
        yield


def _draw_once(data: Any, draw: Callable[[Any, Any], tuple[Any, ...]], index: Any) -> tuple[Any, ...]:
    """What `BuiltinDataset._draw` gives, from the pictures that were drawn before where there are any."""
    import numpy as np

    known = [(data._set.draw, *data._key, *data.size, data.table.groups[row], data.table.ids[row]) for row in index]
    new = [position for position, key in enumerate(known) if key not in _DRAWN]
    if new:
        columns = [column for column in draw(data, index[new]) if column is not None]
        _DRAWN.update(zip((known[position] for position in new), zip(*columns, strict=True), strict=True))
    if not known:
        return draw(data, index)
    images, masks, *depth = (np.stack(column) for column in zip(*(_DRAWN[key] for key in known), strict=True))
    return images, masks, depth[0] if depth else None


@pytest.fixture(autouse=True, scope="session")
def pictures_are_packed_once() -> Iterator[None]:
    """Keep every picture that a report holds as it was packed: hundreds of reports show the same signs."""
    from roadworthy.report import reading

    packed: dict[tuple[Any, ...], str] = {}
    pack = reading._uri

    def pack_once(picture: Any) -> str:
        key = (picture.mode, picture.size, picture.tobytes())
        if key not in packed:
            packed[key] = pack(picture)
        return packed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_uri", pack_once)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("ROADWORTHY_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "gtsrb_test.npz").exists():
        pytest.skip(f"no real images at {folder}: set ROADWORTHY_TEST_DATA to the folder that holds gtsrb_test.npz")
    return folder
