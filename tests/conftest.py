"""Fixtures that many tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)  # its options must be known from the start; test_pytest_plugin.py uses it
pytest.register_assert_rewrite("commands")  # a helper that asserts: failures show what was compared

ROOT = Path(__file__).parent.parent
collect_ignore = ["interop"]  # programs of `make interop`, some of them for another environment
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("KERAS_BACKEND", "torch")


SLOW_FIRST = (
    *("test_docs", "test_engine", "test_nodes", "test_cli", "test_od_test", "test_stubborn_models", "test_compare"),
    *(
        "test_monitors_in_runs",
        "test_rehearsal",
        "test_damage",
        "test_dependability",
        "test_example_plugin",
        "test_stores",
    ),
)
"""Files of more than 15 seconds: begun first, so that no worker is left with one when the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: index for index, name in enumerate(SLOW_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


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


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("ROADWORTHY_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "gtsrb_test.npz").exists():
        pytest.skip(f"no real images at {folder}: set ROADWORTHY_TEST_DATA to the folder that holds gtsrb_test.npz")
    return folder
