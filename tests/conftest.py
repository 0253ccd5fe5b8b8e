"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.register_assert_rewrite("commands")  # a helper that asserts: failures show what was compared

ROOT = Path(__file__).parent.parent


SLOW_FIRST = (
    *("test_docs", "test_engine", "test_nodes", "test_cli", "test_od_test", "test_stubborn_models", "test_compare"),
    *("test_monitors_in_runs", "test_rehearsal", "test_damage", "test_dependability", "test_example_plugin"),
)
"""Files of more than 15 seconds: begun first, so that no worker is left with one when the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: index for index, name in enumerate(SLOW_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("ROADWORTHY_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "gtsrb_test.npz").exists():
        pytest.skip(f"no real images at {folder}: set ROADWORTHY_TEST_DATA to the folder that holds gtsrb_test.npz")
    return folder
