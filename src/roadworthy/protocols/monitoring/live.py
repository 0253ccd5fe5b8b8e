"""What models and monitors cost at runtime: one image at a time, as at deployment, in a step of its own."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from roadworthy.core.errors import InputError, RoadworthyError, foreign_code, is_the_machine_s
from roadworthy.core.roles import Model
from roadworthy.core.threads import one_thread
from roadworthy.core.types import Batch, Images
from roadworthy.engine.monitor_systems import MonitorOn
from roadworthy.engine.plan import PlannedCase
from roadworthy.engine.provenance import machine
from roadworthy.models.onnx import cpu_session
from roadworthy.models.preprocess import Preprocess
from roadworthy.models.signals import Signals
from roadworthy.monitors.guard import Guard
from roadworthy.monitors.onnx_export import export_onnx_model, export_onnx_monitor
from roadworthy.monitors.resident import guard_task, measured, measured_file
from roadworthy.protocols.monitoring.costs import System, time_rows
from roadworthy.protocols.monitoring.names import ALONE, EXPORTED, GUARD, TEST, VALID
from roadworthy.protocols.monitoring.table_specs import TIMES, TIMING
from roadworthy.protocols.monitoring.watching import open_watcher
from roadworthy.protocols.stopwatch import Decide, seconds_in_turns

if TYPE_CHECKING:
    from roadworthy.protocols.monitoring.tables import Evidence

MOST_DIFFERENT = 256
"""Different images that are held in memory and shown in turn."""
SHOWN_FOR_MEMORY = 10
"""Images that a process answers whose memory is measured."""
NOTHING = {"state_bytes": math.nan, "resident_bytes": math.nan, "reason": "", "no_memory": ""}


def timed(
    evidence: Evidence, cases: Sequence[PlannedCase], earlier: Mapping[str, pd.DataFrame]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What was measured of every model alone, then with each monitor, and the times of each image: two tables.

    A model all of whose systems were timed before as it is asked for now (`earlier` tables of the run) is not asked
    again: its rows say where and when that was.
    """
    settings = evidence.settings
    if not settings.timed_images:
        return TIMING.frame([]), TIMES.frame([])
    facts: list[pd.DataFrame] = []
    times: list[pd.DataFrame] = []
    for model in evidence.context.architectures:
        own = [case for case in cases if case.labels["model"] == model and case.labels["set"] == TEST]
        answers = next((case for case in own if case.labels["role"] == "answers"), None)
        if answers is None:
            continue
        systems = {ALONE: answers} | {case.system.name: case for case in own if isinstance(case.system, MonitorOn)}
        asked = f"{settings.timed_images} images, {settings.timed_seconds:g} s" + ", memory" * settings.memory
        known = _known(earlier, answers.source, model, {name: case.case.hash for name, case in systems.items()}, asked)
        if known is None:
            with TemporaryDirectory() as folder:
                known = _Timing(evidence, model, systems, asked, Path(folder)).tables()
        facts.append(known[0])
        times.append(known[1])
    return tuple(_together(spec, own) for spec, own in ((TIMING, facts), (TIMES, times)))  # type: ignore[return-value]


def _together(spec: Any, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True) if tables else spec.frame([])


def _known(
    earlier: Mapping[str, pd.DataFrame], source: str, model: str, systems: Mapping[str, str], asked: str
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """What an earlier run of the folder measured of these systems of a model, all of them; None where it did not."""
    found = []
    for spec in (TIMING, TIMES):
        table = earlier.get(spec.name, pd.DataFrame())
        if not {*spec.columns} <= {*table.columns}:
            return None
        kept = table[(table["model"] == model) & (table["source"] == source if "source" in table else True)]
        found.append(kept[[*spec.columns]].reset_index(drop=True))
    facts, times = found
    guards = facts[facts["form"] == GUARD].set_index("monitor")
    is_same = dict(guards["system"]) == dict(systems) and {*facts["asked"]} == {asked}
    are_timed = {*times.loc[times["form"] == GUARD, "monitor"]} == {*systems}
    return (facts, times) if is_same and are_timed else None


@dataclass
class _Timing:
    """The systems of one model while they are timed; files are written to an empty folder."""

    evidence: Evidence
    model: str
    systems: Mapping[str, PlannedCase]
    asked: str
    folder: Path
    pixels: dict[System, Images] = field(default_factory=dict)
    """Of exported files: a few images as they take them, (N, H, W, C)."""

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The facts and the times of all systems."""
        settings, answers = self.evidence.settings, self.systems[ALONE]
        number = min(settings.timed_images, len(answers.showing.data), MOST_DIFFERENT)
        batch = answers.showing.show(answers.showing.data.batch(slice(0, number)))
        images = [batch.take([row]) for row in range(number)]
        facts: dict[System, dict[str, Any]] = {}
        guards, decides = dict[str, Guard](), dict[System, Decide]()
        for name, planned in self.systems.items():
            where = self.model, name, GUARD
            facts[where] = {**NOTHING, "system": planned.case.hash}
            try:
                decides[where] = self._by_guard(name, images, guards)
                kept = (guards[name].fitted.state, guards[name].rule) if name in guards else ()
                facts[where]["state_bytes"] = float(sum(a.nbytes for arrays in kept for a in arrays.values()))
            except RoadworthyError as error:
                facts[where]["reason"] = str(error)
        files = self._exported(guards, batch, facts, decides)
        with one_thread():
            seconds = seconds_in_turns(decides, number, settings.timed_images, settings.timed_seconds)
        for where, own in seconds.items():
            if isinstance(own, str):
                facts[where]["reason"] = own
        if settings.memory:
            self._measure_memory(facts, guards, files, batch.images[:SHOWN_FOR_MEMORY])
        common = {
            "machine": machine(),
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
            "asked": self.asked,
        }
        key = TIMING.key
        rows = [{**dict(zip(key, where, strict=True)), **own, **common} for where, own in facts.items()]
        times = [r for w, own in seconds.items() if not isinstance(own, str) for r in time_rows(w, own, number)]
        return TIMING.frame(rows), TIMES.frame(times)

    def _by_guard(self, name: str, images: Sequence[Batch], guards: dict[str, Guard]) -> Decide:
        """What is done with one image, by the model alone or with a monitor; its guard is added to those."""
        system = self.systems[name].system
        model = system.underlying
        assert isinstance(model, Model)
        if not isinstance(system, MonitorOn):
            return lambda number: Signals(model, images[number], 1).prediction
        evidence = self.evidence
        cases = evidence.monitor_cases(self.model, name)
        valid = evidence.scenes(self.model).answered(VALID)
        if isinstance(valid, str):
            raise InputError(f"the model has no answers to ID validation images: {valid}")
        watcher = open_watcher(name, evidence.context, cases, valid, evidence.settings, evidence.seed)
        guards[name] = guard = Guard(model, system.fit.fitted, watcher.calibrated.rule, watcher.threshold)
        return lambda number: guard.check_batch(images[number])

    def _exported(
        self,
        guards: Mapping[str, Guard],
        batch: Batch,
        facts: dict[System, dict[str, Any]],
        decides: dict[System, Decide],
    ) -> dict[System, Path]:
        """Write the model and each monitor with it as ONNX files, as far as they can be; others have a reason."""
        model = self.systems[ALONE].system.underlying
        assert isinstance(model, Model)
        size = (int(batch.images.shape[1]), int(batch.images.shape[2]))
        files: dict[System, Path] = {}
        for number, name in enumerate((ALONE, *guards)):
            where, home = (self.model, name, EXPORTED), self.folder / f"exported-{number}"
            facts[where] = {**NOTHING, "system": self.systems[name].case.hash}
            try:
                with foreign_code("", is_the_machine_s):
                    if name == ALONE:
                        home.mkdir()
                        files[where] = export_onnx_model(model, home / "model.onnx", size=size)
                    else:
                        own = guards[name]
                        parts = own.model, own.fitted, own.rule, own.threshold
                        files[where] = export_onnx_monitor(*parts, home, include_preprocessing=True, size=size).path
                facts[where]["state_bytes"] = facts[self.model, name, GUARD]["state_bytes"]
                decides[where], self.pixels[where] = _session_on(files[where], batch)
            except RoadworthyError as error:
                facts[where]["reason"] = str(error)
                if name == ALONE:
                    return {}  # no monitor on it can be written either
        return files

    def _measure_memory(
        self,
        facts: dict[System, dict[str, Any]],
        guards: Mapping[str, Guard],
        files: Mapping[System, Path],
        images: Images,
    ) -> None:
        """Note the most memory that a process of its own takes for each system that was timed, or why not."""
        model = self.systems[ALONE].system.underlying
        assert isinstance(model, Model)

        def measure(where: System) -> int:
            home = self.folder / f"memory-{[*facts].index(where)}"
            home.mkdir()
            if where[2] == GUARD:
                return measured(guard_task(model, guards.get(where[1]), home, images))
            np.save(home / "images.npy", self.pixels[where])
            return measured_file(files[where], home / "images.npy")

        timed = [where for where, own in facts.items() if not own["reason"]]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for where, future in [(where, pool.submit(measure, where)) for where in timed]:
                try:
                    facts[where]["resident_bytes"] = float(future.result())
                except RoadworthyError as error:
                    facts[where]["no_memory"] = str(error)


def _session_on(file: Path, batch: Batch) -> tuple[Decide, Images]:
    """An exported file that is run on one image, repeated where it insists on a batch; a few images at its size."""
    session = cpu_session(str(file))
    (wanted,) = session.get_inputs()
    rows, height, width, channels = wanted.shape
    pixels = Preprocess("0-255", "nhwc", "rgb", (height, width), channels, "uint8")(batch.images)
    tensors = [np.repeat(image[None], rows if isinstance(rows, int) else 1, axis=0) for image in pixels]
    return lambda number: session.run(None, {wanted.name: tensors[number]}), pixels[:SHOWN_FOR_MEMORY]
