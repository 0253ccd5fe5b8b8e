"""Studies and runs of any kind; what only an OD-test needs is loaded for one alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from roadworthy import api
from roadworthy.api import ProgressBar, Run, terminal_progress
from roadworthy.study import OD_TEST, is_od_study


def open_run(path: str | Path) -> Run:
    """Open a run folder, as the kind of run it is."""
    run = Run(path)
    if run.record.get("kind") != OD_TEST:
        return run
    from roadworthy.od_testing import OdTestRun

    return OdTestRun(path)


def run_study(
    source: str | Path | dict[str, Any],
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    trust: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Run:
    """Run a study file (or its content) of any kind into `out` (default: runs/<its name>); resumes by itself.

    See `roadworthy.api.run_study`.
    """
    run_one: Callable[..., Run] = api.run_study
    if is_od_study(source):
        from roadworthy.od_testing import run_od_study as run_one
    return run_one(
        source,
        out=out,
        workers=workers,
        trust=trust,
        device=device,
        accept_chance=accept_chance,
        fresh=fresh,
        progress=progress,
    )
