"""Comparing runs: two stored ones, or a new one with the run of an earlier version that it names as its baseline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from roadworthy.baseline_criteria import AgainstBaseline
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_file
from roadworthy.core.record import RECORD, BaselineRecord, RunRecord
from roadworthy.core.remote import absolute_location
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import Graph
from roadworthy.engine.taking_over import TakenOver, take_over
from roadworthy.metrics import METRICS
from roadworthy.plugins import GivenPlugins, replaced_components
from roadworthy.protocols import find_protocol
from roadworthy.protocols.comparison import ALPHA, MARGIN, check_question, choose_pairs, compare, load_systems
from roadworthy.protocols.table_specs import BASELINE_CHANGES
from roadworthy.stored import Run, open_run
from roadworthy.stored_evidence import blamed_on, stored_parts, stored_settings


def compare_runs(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    models: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    workers: int | None = None,
    plugins: GivenPlugins = (),
    trust: bool = False,
) -> pd.DataFrame:
    """Compare models on the same images, condition by condition (see `protocols.comparison.compare`).

    `runs` is a run or several, each by its path or as a `Run`. The first is the baseline: models of the others are
    compared with its model of the same name, or its only model with their only one. A single run compares its later
    models with its first. `models=("a", "b")` compares any two: b with a of a single run, or b of every later run with
    a of the first. Runs with plugins need their code: see `open_run`.
    """
    runs = [runs] if isinstance(runs, str | os.PathLike) else runs
    opened = [open_run(os.fspath(path), plugins=plugins, trust=trust) for path in runs]
    records = [run.record for run in opened]
    _load_plugins_of(opened, records, metrics)
    check_question(metrics, alpha, margin)
    names, several = [[*record.models] for record in records], any("" not in record.sources for record in records)
    with blamed_on(*opened):
        pairs = load_systems(
            choose_pairs([os.fspath(path) for path in runs], names, models, several),
            [run.path.name for run in opened],
            [stored_parts(run.folder, record) for run, record in zip(opened, records, strict=True)],
            [stored_settings(record) for record in records],
            metrics,
            alpha,
            workers or os.cpu_count() or 1,
        )
        return compare(pairs, metrics, alpha, margin)


def _load_plugins_of(runs: Sequence[Run], records: Sequence[RunRecord], metrics: Sequence[str] | None) -> None:
    """Import the plugins of all runs; refuse two that bring different code for what the comparison reads.

    A metric that it does not read may be any of them.
    """
    used = [plugin for run in runs for plugin in run.require_plugins()[0]]
    protocols = [find_protocol(name) for record in records for name in record.protocols]
    read = {*metrics} if metrics is not None else {name for protocol in protocols for name in protocol.compared}
    for kind, name in replaced_components(used):
        if kind != METRICS.kind or name in read:
            raise InputError(
                f"two runs bring different code for the {kind} {name!r}: name the file to use for both with `plugins=`"
            )


@dataclass(frozen=True)
class Baseline:
    """The finished run of an earlier version: `name` as it was named, its record, and the SHA-256 of that."""

    name: str
    run: Run
    record: RunRecord
    sha256: str

    @classmethod
    def opened(cls, name: str, base: Path, out: str | Path, trust: bool) -> Baseline:
        """Open the run that a study names, its path starting from `base`; the run in `out` itself is refused."""
        path, target = absolute_location(name, base), absolute_location(out)
        resolved = [one if isinstance(one, str) else one.resolve() for one in (path, target)]
        if resolved[0] == resolved[1]:
            raise InputError(
                f"{name} is the folder of this run, and so cannot be its baseline: choose another folder with `out=`"
            )
        run = open_run(path, trust=trust)
        run.folder.check_finished()
        return cls(name, run, run.record, digest_file(run.path / RECORD))

    def take_over(self, graph: Graph, folder: RunFolder) -> TakenOver:
        """Put what is unchanged into the folder of a new run."""
        return take_over(graph, folder, self.run.folder)

    def noted(self, folder: RunFolder, record: RunRecord, taken: TakenOver, not_compared: str) -> RunRecord:
        """The record of the new run with what it has of this one; where it has any, its environments too."""
        noted = BaselineRecord(
            run=self.name,
            sha256=self.sha256,
            beside=self._beside(folder),
            artifacts=taken.artifacts,
            cases=taken.cases,
            damaged=[*taken.damaged],
            not_compared=not_compared,
        )
        environments = [*record.earlier_environments]
        if taken.artifacts or taken.cases:
            for known in (*self.record.earlier_environments, self.record.environment):
                if known != record.environment and known not in environments:
                    environments.append(known)
        return record.model_copy(update={"baseline": noted, "earlier_environments": environments})

    def _beside(self, folder: RunFolder) -> str | None:
        """The way from the folder of a new run to that of this one; None where one of them is at an address."""
        if folder.mirror or self.run.folder.mirror:
            return None
        return Path(os.path.relpath(self.run.path, folder.path)).as_posix()

    def against(self, folder: RunFolder, record: RunRecord) -> AgainstBaseline:
        """What criteria of a new run are told that are judged against this one."""
        return AgainstBaseline((self.run.folder, self.record), (folder, record.as_stored()))

    def changes(self, folder: RunFolder, record: RunRecord, workers: int) -> tuple[pd.DataFrame, str]:
        """How the models of a new run differ from those of this one, regressions first; and why not, or not all.

        A model is compared with that of the same name, or the only one with the only one.
        """
        names = [[*self.record.models], [*record.models]]
        alone = len(names[0]) == len(names[1]) == 1
        paired = names[1] if alone else [name for name in names[1] if name in names[0]]
        left_out = [name for name in names[1] if name not in paired]
        reason = f"no counterpart in {self.name}: {', '.join(left_out)}" if left_out else ""
        if not paired:
            return BASELINE_CHANGES.frame([]), reason
        records, stores = [self.record, record.as_stored()], [self.run.folder, folder]
        try:
            _load_plugins_of([self.run], records, None)
            with blamed_on(self.run):
                pairs = load_systems(
                    choose_pairs([self.name, str(folder.path)], [names[0], paired], None, "" not in record.sources),
                    [self.run.path.name, folder.path.name],
                    [stored_parts(store, own) for store, own in zip(stores, records, strict=True)],
                    [stored_settings(own) for own in records],
                    workers=workers,
                )
                return compare(pairs), reason
        except InputError as error:
            return BASELINE_CHANGES.frame([]), "; ".join(filter(None, [str(error), reason]))
