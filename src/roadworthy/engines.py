"""Where a study runs, by name: threads of this process, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roadworthy.building import apart_builder
from roadworthy.cluster import RayExecutor
from roadworthy.core.errors import InputError, MissingExtra, UnknownName
from roadworthy.core.remote import RemoteFolder, is_address
from roadworthy.engine.executor import Executor
from roadworthy.engine.local import LocalExecutor
from roadworthy.engine.memory import MemoryLimit
from roadworthy.engine.progress import ProgressBar
from roadworthy.preparing import Prepared


def _on_this_machine(
    prepared: Prepared, folder: Path, workers: int | None, address: str | None, limit: MemoryLimit | None, **shown: Any
) -> Executor:
    workers = workers or os.cpu_count() or 1
    apart = apart_builder(prepared, folder) if workers > 1 and limit is None else None
    return LocalExecutor(workers, **shown, apart=apart, limit=limit)


def _on_a_cluster(
    prepared: Prepared, folder: Path, workers: int | None, address: str | None, limit: MemoryLimit | None, **shown: Any
) -> Executor:
    return RayExecutor(prepared, address=address, workers=workers, **shown)


def _check_here(address: str | None, memory: str | int | None) -> None:
    if address:
        raise InputError("`address=` is that of a cluster, which is not asked for: add `engine='ray'`")
    if memory is not None:
        MemoryLimit(memory)


def _check_cluster(address: str | None, memory: str | int | None) -> None:
    if memory is not None:
        raise InputError("`memory=` is for threads of this process: give the workers of a cluster `resources` instead")
    if find_spec("ray") is None:
        raise MissingExtra("runs on a cluster", "ray")


@dataclass(frozen=True)
class _Engine:
    """What refuses options that an engine does not take, and what makes its executor."""

    check: Callable[[str | None, str | int | None], None]
    make: Callable[..., Executor]


ENGINES: Mapping[str, _Engine] = {
    "local": _Engine(_check_here, _on_this_machine),
    "ray": _Engine(_check_cluster, _on_a_cluster),
}


def check_options(
    engine: str, *, address: str | None = None, memory: str | int | None = None, out: str | Path | None = None
) -> None:
    """Refuse what cannot be used, whatever the study is: it is known before images are read and models opened.

    So are options that an engine does not take, too little memory for this process as it is, and extras that are not
    installed: of the engine, or of the address that the run is to be written to.
    """
    if engine not in ENGINES:
        raise UnknownName("engine", engine, ENGINES)
    ENGINES[engine].check(address, memory)
    if is_address(out):
        RemoteFolder(str(out))


def make_executor(
    engine: str,
    prepared: Prepared,
    folder: Path,
    *,
    workers: int | None,
    address: str | None,
    limit: MemoryLimit | None,
    progress: ProgressBar,
) -> Executor:
    """The executor of an engine for a prepared study and the folder of its run; an error where it cannot be used.

    With a limit of memory, artifacts are built one after the other in this process.
    """
    return ENGINES[engine].make(
        prepared, folder, workers, address, limit, progress=progress, title=f"testing {prepared.study.name}"
    )
