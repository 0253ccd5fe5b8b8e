"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.register_assert_rewrite("commands")  # a helper that asserts: failures show what was compared

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("ROADWORTHY_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "gtsrb_test.npz").exists():
        pytest.skip(f"no real images at {folder}: set ROADWORTHY_TEST_DATA to the folder that holds gtsrb_test.npz")
    return folder
