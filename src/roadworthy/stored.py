"""A stored run: its record, its tables, what its readouts say, its verdicts and its report."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from roadworthy import report
from roadworthy.core import record as records
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.record import HISTORY, RunRecord
from roadworthy.core.validation import read_yaml
from roadworthy.engine.cleaning import Cleaning, clean
from roadworthy.engine.folder import STUDY, RunFolder, write_bytes, write_json
from roadworthy.engine.inventory import check_recorded, file_problems
from roadworthy.engine.provenance import missing_extensions
from roadworthy.monitors.opening import import_user_code, named_code
from roadworthy.plugins import (
    ChangedPlugin,
    GivenPlugins,
    NamedPlugin,
    load_plugins,
    name_plugins,
    other_code,
    plugin_problems,
)
from roadworthy.protocols import find_protocol
from roadworthy.protocols.base import Evidence
from roadworthy.protocols.declared import check_stored_tables, declared_tables
from roadworthy.protocols.joint_test.answers import answer_tables
from roadworthy.protocols.pages import pages_of
from roadworthy.protocols.repeat_analysis.analysis import analyse, networks_of
from roadworthy.publishing import Published, content_of, log_to_mlflow
from roadworthy.publishing.mlflow import EXPERIMENT
from roadworthy.report.facts import REPORT, load_facts
from roadworthy.report.figures import chart_figures, find_figure
from roadworthy.stored_evidence import (
    blames_the_run,
    deciding_table,
    judge_run,
    load_evidence,
    stored_settings,
)
from roadworthy.stored_judging import against_or_stored, judge_stored, own_criteria, protocols_of
from roadworthy.stored_reading import StoredRun, follows, same_table
from roadworthy.verdict import (
    Verdict,
    criteria_file_of,
    failed_parts,
    history,
)
from roadworthy.verdict.history import read_history
from roadworthy.verdict.judge import never_pass
from roadworthy.verdict.why import DECIDING


class Examined(NamedTuple):
    """What is wrong with a run, a sentence each, and the names of the tables that were computed anew."""

    problems: list[str]
    recomputed: frozenset[str] = frozenset()


class Run(StoredRun):
    """A finished run.

    `run.tables["classification"]` is a data frame; `run.verdict("criteria.yaml")` judges; `run.report()` writes and
    returns the report; `run.verify()` compares everything with its hashes and recomputes the tables. Where the run has
    plugins, what is made anew needs their code, which runs only with `trust`; `plugins` stand in for those of the same
    file name that the run names.
    """

    def __init__(self, path: str | Path | RunFolder, *, plugins: GivenPlugins = (), trust: bool = False) -> None:
        super().__init__(path if isinstance(path, RunFolder) else RunFolder.existing(path))
        record, columns = self.folder.record(changed_too=True), self.folder.table_columns()
        check_stored_tables(self.path, columns, record.protocols, several_sources="" not in record.sources)
        self._plugins, self._trust = plugins, trust
        self._warned: set[str] = set()

    def _named_plugins(self, record: RunRecord) -> list[NamedPlugin]:
        """The plugins that the run names, or those that were given in their place, as they are to be loaded."""
        return name_plugins(record.plugins, self.path, self._plugins, "run")

    def load_plugins(self) -> tuple[list[records.PluginRecord], list[str]]:
        """Import the plugins of the run; returns them as loaded, and which of them are other code than the run names.

        An `InputError` also where nobody brings a component that the run names.
        """
        record = self.record
        loaded = load_plugins(self._named_plugins(record), self._trust)
        check_components(record)
        self._import_monitors()
        return loaded, other_code(record.plugins, loaded)

    def _import_monitors(self) -> None:
        """Import the code that monitors of the run name, where it is trusted and there; who needs it says so else."""
        study = read_yaml(self.path / STUDY, "study") if self._trust and (self.path / STUDY).is_file() else {}
        monitors = study.get("monitors", {}) if isinstance(study, dict) else {}
        specs = [spec for label, entry in monitors.items() for spec in named_code(entry, label)]
        for spec in dict.fromkeys(specs):
            if Path(spec.rpartition(":")[0]).is_file():
                import_user_code(spec, self.path, trust=True)

    def require_plugins(self) -> tuple[list[records.PluginRecord], list[str]]:
        """The same, with one warning on each that is other code."""
        loaded, other = self.load_plugins()
        for plugin in other:
            if plugin not in self._warned:
                warnings.warn(_is_other_code(plugin), stacklevel=3)
        self._warned.update(other)
        return loaded, other

    def require_own_code(self, verdict: Verdict | None = None) -> None:
        """Refuse to go on to a verdict of the run's own where plugins are not the code that the run was made with."""
        _, other = self.load_plugins()
        if other := [*dict.fromkeys([*other, *(verdict.other_code if verdict else ())])]:
            raise InputError(
                f"a verdict that is made with other code of plugin {', '.join(other)} cannot become the run's own: run "
                "the study again with that code"
            )

    @blames_the_run
    def verdict(
        self,
        criteria: str | Path | list[Any] | dict[str, Any] | None = None,
        *,
        baseline: str | os.PathLike[str] | None = None,
    ) -> Verdict:
        """Judge the run against criteria (default: those of its own verdict). Writes nothing.

        `baseline` is the run that criteria with `against: baseline` are judged by; default: the one that the run's own
        verdict or its study names.
        """
        self.folder.check_finished()
        _, other = self.require_plugins()
        verdict = judge_stored(self, criteria, os.fspath(baseline) if baseline is not None else "")
        return replace(verdict, criteria_file=criteria_file_of(criteria), other_code=tuple(other))

    def beside(self, location: str | RunFolder) -> Run:
        """Another run, or this one read through another folder, opened with the same plugins and trust."""
        return Run(location, plugins=self._plugins, trust=self._trust)

    @property
    def has_other_criteria(self) -> bool:
        """Whether its own verdict is by other criteria than those that the study was run with."""
        return history.other_criteria(read_history(self.path))

    def history_lines(self) -> list[str]:
        """What is other since the run's own verdict before, and what is lost of its history, in lines of plain text."""
        return history.history_lines(read_history(self.path))

    def save_verdict(self, verdict: Verdict) -> None:
        """Make a verdict and its criteria the run's own: verdict.json, run.json and the report show them.

        The verdict that was its own before stays in the history. One that was made with other code of a plugin than the
        run's is refused.
        """
        self.folder.check_finished()
        self.require_own_code(verdict)
        with self.folder.locked():
            check_recorded(self.folder, {REPORT})  # an entry would bless a history that was changed
            self._note(verdict, "replaced")
            write_json(self.path / "verdict.json", verdict.to_json())
            tables = self._write_deciding(verdict)
            decision = verdict.decision.model_dump() if verdict.decision else {}
            changes = {"decision": decision} if decision or self.record.decision else {}
            self.folder.update_record(["verdict.json", *tables], criteria=verdict.criteria, **changes)
            self._render()  # reads what was recorded just now
            self.folder.update_record(["report.html"])

    def note_verdict(self, verdict: Verdict) -> None:
        """Add a verdict to the history, which the report lists; the run's own verdict stays.

        One that is in the history already, since the run's own verdict was made, changes nothing.
        """
        self.folder.check_finished()
        if self._with_entry(verdict, "judged") == read_history(self.path):
            return
        self.require_plugins()
        with self.folder.locked():
            check_recorded(self.folder, {REPORT})  # an entry would bless a history that was changed
            self._note(verdict, "judged")
            self._render()
            self.folder.update_record(["report.html"])

    def _note(self, verdict: Verdict, made: history.Made) -> None:
        """One more entry of the history; only for who holds the lock, and before verdict.json is written."""
        write_history(self.path, self._with_entry(verdict, made))
        self.folder.update_record([HISTORY])

    def _with_entry(self, verdict: Verdict, made: history.Made) -> list[history.Entry]:
        noted = (verdict.criteria_file, verdict.other_code)
        subject = history.Subject.of(self.record)
        entry = history.make_entry(verdict.to_json(), verdict.criteria, made, utc_now(), *noted, subject=subject)
        return history.with_entry(read_history(self.path), entry)

    def conclude(self, record: RunRecord, verdict: Verdict) -> None:
        """End a run whose tables are written: verdict, report and the finished record; only for who holds the lock."""
        self._note(verdict, "study")
        write_json(self.path / "verdict.json", verdict.to_json())
        if verdict.findings:
            self._write_deciding(verdict)
        self.folder.write_record(record)
        self._render()
        self.folder.update_record(["report.html"], finished=utc_now())

    def _write_deciding(self, verdict: Verdict) -> list[str]:
        """Store what decides the criteria of the run's own verdict; the files that were written."""
        table = deciding_table(verdict, self.path)
        DECIDING.check(table)
        self.folder.write_table(DECIDING.name, table)
        return [f"tables/{DECIDING.name}.{ending}" for ending in ("csv", "parquet")]

    @blames_the_run
    def report(self) -> Path:
        """Write report.html anew from the stored tables and pictures; the run must be as it was written otherwise."""
        self.folder.check_finished()
        check_recorded(self.folder, {REPORT})
        self.require_plugins()
        with self.folder.locked():
            path = self._render()
            self.folder.update_record(["report.html"])
        return path

    def _render(self) -> Path:
        path = self.path / "report.html"
        write_bytes(path, self.rendered())
        return path

    def rendered(self) -> bytes:
        """The report, as the stored tables, pictures and verdict give it; plugins must be loaded."""
        asked = protocols_of(own_criteria(self.record).criteria, self.record)
        facts = load_facts(self.path)
        return report.render(facts, pages_of(facts), asked).encode()

    @blames_the_run
    def figures(self) -> dict[str, Any]:
        """Every chart of the report by its name, as a `plotly.graph_objects.Figure`.

        A chart with several views is there once for each, as `name: view`. plotly must be installed.
        """
        self.require_plugins()
        return chart_figures(pages_of(load_facts(self.path)))

    @blames_the_run
    def figure(self, name: str) -> Any:
        """One of the `figures`; of a chart with several views, its name alone is the first."""
        self.require_plugins()
        return find_figure(pages_of(load_facts(self.path)), name)

    @blames_the_run
    def headline(self) -> list[str]:
        """What the run says, in a few lines of plain text: the verdict, then the main figures of each protocol."""
        self.require_plugins()
        facts = load_facts(self.path)
        return report.headline(facts, pages_of(facts))

    @blames_the_run
    def markdown(self, verdict: Verdict | None = None) -> str:
        """A verdict (default: by the run's own criteria) and the main figures as Markdown, for a job summary."""
        judged = self.verdict() if verdict is None else verdict
        self.require_plugins()
        facts = load_facts(self.path)
        lines = report.page_lines(facts, pages_of(facts))
        return report.verdict_markdown(judged.to_json(), self.record, lines)

    @blames_the_run
    def log_to_mlflow(self, tracking_uri: str, *, experiment: str = EXPERIMENT, again: bool = False) -> Published:
        """Log the run to MLflow (extra `mlflow`): parameters, headline figures with bounds, verdict, tables, report.

        `tracking_uri` is such as `sqlite:///mlflow.db` or that of a server. A run that the experiment has already is
        not logged another time, unless `again` asks for it.
        """
        self.folder.check_finished()
        verdict, pages, settings = self.verdict(), pages_of(load_facts(self.path)), stored_settings(self.record)
        texts = {"junit.xml": verdict.to_junit(), "summary.md": self.markdown(verdict)}
        content = content_of(
            self.path, self.record, settings=settings, verdict=verdict.to_json(), pages=pages, texts=texts
        )
        return log_to_mlflow(content, tracking_uri, experiment=experiment, again=again)

    @blames_the_run
    def baseline_lines(self) -> list[str]:
        """How its models differ from those of the run that its study names as baseline, in lines of plain text."""
        self.require_plugins()
        return report.baseline_lines(self.path)

    def file_problems(self, absent: Collection[str] = ()) -> list[str]:
        """Files that are missing, changed, foreign or left behind; an `InputError` where the run is not finished."""
        self.folder.check_finished()
        self.folder.check_idle()
        return file_problems(self.folder, absent)

    def clean(self, *, dry_run: bool = False, foreign: bool = False) -> Cleaning:
        """Remove what nothing refers to: what it was, and the `foreign` files, which stay unless they are to go too."""
        return clean(self.folder, dry_run=dry_run, foreign=foreign)

    @blames_the_run
    def verify(self) -> list[str]:
        """What is wrong with the run: files missing, changed or added, tables that do not follow from the readouts.

        Of a run at an address every byte is fetched again: what is checked is what is there.
        """
        self.folder.refresh(again=True)
        return self.examine().problems

    @blames_the_run
    def examine(self, absent: Collection[str] = ()) -> Examined:
        """The same, and which tables were computed anew; files of the names `absent` may be missing."""
        problems, record = self.file_problems(absent), self.folder.record(changed_too=True)
        of_plugins = plugin_problems(self._named_plugins(record))
        if problems or any(isinstance(problem, ChangedPlugin) for problem in of_plugins):
            return Examined(problems + [str(problem) for problem in of_plugins])
        problems += map(_is_other_code, self.load_plugins()[1])
        stored_names, evidence = self.folder.table_names(), load_evidence(self.folder, record)
        declared, computed = declared_tables(record.protocols), _tables(evidence, record)
        for name, table in computed.items():
            later = declared[name].added_later if name in declared else ()
            if name in stored_names and not follows(table, self.folder.table(name), later):
                problems.append(f"table {name} does not follow from the readouts")
        unknown = [name for name in stored_names if name not in declared]
        problems += [f"table {name} is declared by no protocol that is known here" for name in unknown]
        recomputed = {name for name in stored_names if name in computed or name == DECIDING.name}
        return Examined(problems + self._verdict_problems(record, evidence), frozenset(recomputed))

    def _verdict_problems(self, record: RunRecord, evidence: Mapping[str, Evidence]) -> list[str]:
        """What is wrong with the verdict: it does not follow from what is stored, or its history does not fit it."""
        if not (self.path / "verdict.json").is_file():
            return ["verdict.json is missing"]
        problems = history.history_problems(self.path, record.criteria)
        stored = json.loads((self.path / "verdict.json").read_text())
        status = stored["status"] if "failed" in stored else never_pass(stored["status"], failed_parts(record))
        before = [status, *((criterion["id"], criterion["status"]) for criterion in stored["criteria"])]
        before += [(answer["question"], answer["status"]) for answer in stored.get("questions", ())]
        own = own_criteria(record)
        measure = against_or_stored(self, own)
        judged = judge_run(own.criteria, evidence, self.folder, record, decision=own.decision, against=measure)
        after = [judged.status, *((finding.criterion.id, finding.status) for finding in judged.findings)]
        if before != [*after, *((answer.question, answer.status) for answer in judged.answers)]:
            problems.append("verdict.json does not follow from the readouts and the criteria")
        if DECIDING.name in self.folder.table_names():
            stored_rows = self.folder.table(DECIDING.name)
            if not same_table(deciding_table(judged, self.path), stored_rows):
                problems.append(f"table {DECIDING.name} does not follow from the readouts and the criteria")
        return problems


def open_run(path: str | Path, *, plugins: GivenPlugins = (), trust: bool = False) -> Run:
    """Open a run folder, or a run at an address such as s3://bucket/run.

    Its tables can be read at once. A report, verdict or check of a run with plugins needs their code: this is imported
    from where the run names it, or from the given `plugins`, and only with `trust`.
    """
    return Run(path, plugins=plugins, trust=trust)


def _is_other_code(plugin: str) -> str:
    return f"plugin {plugin} is not the code that the run was made with"


def check_components(record: RunRecord) -> None:
    """Refuse to go on where a protocol or a metric of a run is not here, and name the packages that may bring it."""
    try:
        for name, settings in stored_settings(record).items():
            find_protocol(name).metrics_of(settings)
    except UnknownName as error:
        packages = missing_extensions(record.environment)
        what = f"the {error.kind} {error.name!r} of the run is not here"
        if packages:
            raise InputError(
                f"{what}: install the package {' or '.join(packages)}, which the run was made with"
            ) from None
        raise InputError(f"{what}: name the code that brings it with `plugins=`, or install its package") from None


def _tables(evidence: Mapping[str, Evidence], record: RunRecord) -> dict[str, pd.DataFrame]:
    tables = {name: table for own in evidence.values() for name, table in own.tables().items()}
    return tables | derived_tables(tables, record)


def derived_tables(tables: Mapping[str, pd.DataFrame], record: RunRecord) -> dict[str, pd.DataFrame]:
    """Tables made from those of protocols: analyses over repeats, and what answers the questions of the study."""
    return analyse(tables, record.protocols, networks_of(record)) | answer_tables(
        tables, record.protocols, record.questions
    )


def write_history(run: Path, entries: Sequence[history.Entry]) -> None:
    """Write the history of verdicts of the run in a folder; nothing where there is no entry."""
    if entries:
        write_json(run / HISTORY, [entry.dump() for entry in entries])


def utc_now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
