"""Two runs side by side, as `roadworthy compare` shows them; made once for two runs that stay as they are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from roadworthy.comparing import compare_runs
from roadworthy.core.record import RECORD
from roadworthy.protocols.comparison import ALPHA, MARGIN
from roadworthy.report import render_comparison

KEPT = 8
"""Comparisons that are kept."""


class Comparisons:
    """The pages of comparisons."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], str] = OrderedDict()
        self._turn = threading.Lock()

    def page(self, before: Path, after: Path) -> str:
        """How a run differs from an earlier one, as HTML; an `InputError` where they cannot be compared.

        Plugins of the runs are not loaded: runs that need theirs are refused.
        """
        key = tuple((path, (path / RECORD).stat().st_mtime_ns) for path in (before, after))
        with self._turn:
            if key not in self._kept:
                table = compare_runs([before, after], workers=1)
                title = f"{after.name} against {before.name}"
                self._kept[key] = render_comparison(table, title, ALPHA, MARGIN)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]
