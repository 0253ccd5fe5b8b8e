"""The page of a self-test: what was compared with what, on which machine, with which result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.report import render_tables

if TYPE_CHECKING:
    from roadworthy.selftest import SelfTest

TEMPLATE = Path(__file__).with_name("page.html.j2")


def render(test: SelfTest) -> str:
    """One HTML page that opens offline, with the look of the report."""
    from roadworthy.selftest import KINDS
    from roadworthy.selftest.items import FAIL, STATUSES

    machine = [
        (part, test.machine[part], test.recorded_on.get(part, ""), test.machine[part] == test.recorded_on.get(part))
        for part in test.machine
    ]
    return render_tables(
        TEMPLATE, test=test, kinds=KINDS, statuses=STATUSES, failed=test.of_status(FAIL), machine=machine
    )
