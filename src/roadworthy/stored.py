"""A stored run: its record, its tables, what its readouts say, its verdicts and its report."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from roadworthy import report
from roadworthy.core import record as records
from roadworthy.core.errors import InputError, UnknownName, from_here
from roadworthy.core.hashing import digest_file
from roadworthy.core.record import RunRecord
from roadworthy.core.validation import read_yaml
from roadworthy.engine.cleaning import Cleaning, clean
from roadworthy.engine.folder import STUDY, RunFolder, write_bytes, write_json
from roadworthy.engine.inventory import file_problems
from roadworthy.engine.provenance import missing_extensions
from roadworthy.metrics import stored_name
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
from roadworthy.preparing import check_criteria
from roadworthy.protocols import find_protocol
from roadworthy.protocols.base import Evidence
from roadworthy.protocols.declared import check_stored_tables, declared_tables
from roadworthy.protocols.joint_test.answers import answer_tables
from roadworthy.protocols.pages import pages_of
from roadworthy.protocols.repeat_analysis.analysis import analyse
from roadworthy.publishing import Published, content_of, log_to_mlflow
from roadworthy.publishing.mlflow import EXPERIMENT
from roadworthy.stored_evidence import (
    blames_the_run,
    deciding_table,
    judge_run,
    load_evidence,
    stored_parts,
    stored_settings,
)
from roadworthy.verdict import (
    DecidedCriteria,
    Decision,
    Failed,
    Verdict,
    criteria_file_of,
    failed_parts,
    history,
    load_criteria,
    load_decided,
)
from roadworthy.verdict.history import HISTORY, read_history
from roadworthy.verdict.judge import never_pass
from roadworthy.verdict.why import DECIDING


class Run:
    """A finished run.

    `run.tables["classification"]` is a data frame; `run.verdict("criteria.yaml")` judges; `run.report()` writes and
    returns the report; `run.verify()` compares everything with its hashes and recomputes the tables. Where the run has
    plugins, what is made anew needs their code, which runs only with `trust`; `plugins` stand in for those of the same
    file name that the run names.
    """

    def __init__(self, path: str | Path | RunFolder, *, plugins: GivenPlugins = (), trust: bool = False) -> None:
        self.folder = path if isinstance(path, RunFolder) else RunFolder.existing(path)
        record, columns = self.folder.record(), self.folder.table_columns()
        check_stored_tables(self.path, columns, record.protocols, several_sources="" not in record.sources)
        self._plugins, self._trust = plugins, trust
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        record = self.record
        images = sum(source.data.images for source in record.sources.values())
        facts = [
            f"models {', '.join(record.models)}" if record.models else "no models",
            *([f"{images:,} images"] if images else []),
            self._status(),
            f"{len(self.tables)} tables",
        ]
        return f"<{type(self).__name__} {record.study} in {from_here(self.path)}: {'; '.join(facts)}>"

    def __fspath__(self) -> str:
        """The run's folder, so that a run can be given wherever its path can."""
        return str(self.path)

    def _status(self) -> str:
        """The stored verdict in two words, or that there is none yet."""
        if not self.record.finished:
            return "not finished"
        try:
            return f"verdict {json.loads((self.path / 'verdict.json').read_text())['status']}"
        except (OSError, ValueError, LookupError, TypeError):
            return "verdict not readable"

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def record(self) -> RunRecord:
        """Provenance: run.json."""
        return self.folder.record()

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """Every table by name, read when asked for."""
        return _Tables(self.folder)

    @property
    def failures(self) -> list[Failed]:
        """What failed, each with its cause."""
        return [*failed_parts(self.record)]

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
    def verdict(self, criteria: str | Path | list[Any] | dict[str, Any] | None = None) -> Verdict:
        """Judge the run against criteria (default: those of its own verdict). Writes nothing."""
        self.folder.check_finished()
        _, other = self.require_plugins()
        record = self.record
        chosen = own_criteria(record) if criteria is None else load_decided(criteria)
        check_criteria(chosen.criteria, stored_parts(self.folder, record), stored_settings(record), record.questions)
        verdict = judge_run(chosen.criteria, load_evidence(self.folder, record), self.folder, record)
        file = criteria_file_of(criteria)
        return replace(verdict, decision=chosen.decision, criteria_file=file, other_code=tuple(other))

    @property
    def has_other_criteria(self) -> bool:
        """Whether its own verdict is by other criteria than those that the study was run with."""
        return history.other_criteria(read_history(self.path))

    def save_verdict(self, verdict: Verdict) -> None:
        """Make a verdict and its criteria the run's own: verdict.json, run.json and the report show them.

        The verdict that was its own before stays in the history. One that was made with other code of a plugin than the
        run's is refused.
        """
        self.folder.check_finished()
        self.require_own_code(verdict)
        with self.folder.locked():
            self._check_history()
            self._note(verdict, "replaced")
            write_json(self.path / "verdict.json", verdict.to_json())
            tables = self._write_deciding(verdict)
            self._render()
            decision = verdict.decision.model_dump() if verdict.decision else {}
            changes = {"decision": decision} if decision or self.record.decision else {}
            self.folder.update_record(["verdict.json", *tables, "report.html"], criteria=verdict.criteria, **changes)

    def note_verdict(self, verdict: Verdict) -> None:
        """Add a verdict to the history, which the report lists; the run's own verdict stays.

        One that is in the history already, since the run's own verdict was made, changes nothing.
        """
        self.folder.check_finished()
        if self._with_entry(verdict, "judged") == read_history(self.path):
            return
        self.require_plugins()
        with self.folder.locked():
            self._check_history()
            self._note(verdict, "judged")
            self._render()
            self.folder.update_record(["report.html"])

    def _note(self, verdict: Verdict, made: history.Made) -> None:
        """One more entry of the history; only for who holds the lock, and before verdict.json is written."""
        write_history(self.path, self._with_entry(verdict, made))
        self.folder.update_record([HISTORY])

    def _check_history(self) -> None:
        """Refuse to add to a history that was changed: the entry would bless it."""
        recorded = self.record.files.get(HISTORY)
        if recorded and not ((self.path / HISTORY).is_file() and digest_file(self.path / HISTORY) == recorded):
            raise InputError(f"{self.path / HISTORY} was changed or is missing: check the run with roadworthy verify")

    def _with_entry(self, verdict: Verdict, made: history.Made) -> list[history.Entry]:
        noted = (verdict.criteria_file, verdict.other_code)
        entry = history.make_entry(verdict.to_json(), verdict.criteria, made, utc_now(), *noted)
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
        """Write report.html anew from the stored tables and pictures."""
        self.folder.check_finished()
        self.require_plugins()
        with self.folder.locked():
            path = self._render()
            self.folder.update_record(["report.html"])
        return path

    def _render(self) -> Path:
        path = self.path / "report.html"
        write_bytes(path, report.render(self.path, pages_of(self.path)).encode())
        return path

    @blames_the_run
    def headline(self) -> list[str]:
        """What the run says, in a few lines of plain text: the verdict, then the main figures of each protocol."""
        self.require_plugins()
        return report.headline(self.path, pages_of(self.path))

    @blames_the_run
    def markdown(self, verdict: Verdict | None = None) -> str:
        """A verdict (default: by the run's own criteria) and the main figures as Markdown, for a job summary."""
        judged = self.verdict() if verdict is None else verdict
        self.require_plugins()
        lines = report.page_lines(self.path, pages_of(self.path))
        return report.verdict_markdown(judged.to_json(), self.record, lines)

    @blames_the_run
    def log_to_mlflow(self, tracking_uri: str, *, experiment: str = EXPERIMENT, again: bool = False) -> Published:
        """Log the run to MLflow (extra `mlflow`): parameters, headline figures with bounds, verdict, tables, report.

        `tracking_uri` is such as `sqlite:///mlflow.db` or that of a server. A run that the experiment has already is
        not logged another time, unless `again` asks for it.
        """
        self.folder.check_finished()
        verdict, pages, settings = self.verdict(), pages_of(self.path), stored_settings(self.record)
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

    def file_problems(self) -> list[str]:
        """Files that are missing, changed, foreign or left behind; an `InputError` where the run is not finished."""
        self.folder.check_finished()
        self.folder.check_idle()
        return file_problems(self.folder)

    def clean(self, *, dry_run: bool = False, foreign: bool = False) -> Cleaning:
        """Remove what nothing refers to: what it was, and the `foreign` files, which stay unless they are to go too."""
        return clean(self.folder, dry_run=dry_run, foreign=foreign)

    @blames_the_run
    def verify(self) -> list[str]:
        """What is wrong with the run: files missing, changed or added, tables that do not follow from the readouts.

        Of a run at an address every byte is fetched again: what is checked is what is there.
        """
        self.folder.refresh(again=True)
        problems, record = self.file_problems(), self.record
        of_plugins = plugin_problems(self._named_plugins(record))
        if problems or any(isinstance(problem, ChangedPlugin) for problem in of_plugins):
            return problems + [str(problem) for problem in of_plugins]
        problems += map(_is_other_code, self.load_plugins()[1])
        stored_names, evidence = self.folder.table_names(), load_evidence(self.folder, record)
        declared = declared_tables(record.protocols)
        for name, table in _tables(evidence, record).items():
            later = declared[name].added_later if name in declared else ()
            if name in stored_names and not follows(table, self.folder.table(name), later):
                problems.append(f"table {name} does not follow from the readouts")
        unknown = [name for name in stored_names if name not in declared]
        problems += [f"table {name} is declared by no protocol that is known here" for name in unknown]
        return problems + self._verdict_problems(record, evidence)

    def _verdict_problems(self, record: RunRecord, evidence: Mapping[str, Evidence]) -> list[str]:
        """What is wrong with the verdict: it does not follow from what is stored, or its history does not fit it."""
        if not (self.path / "verdict.json").is_file():
            return ["verdict.json is missing"]
        problems = history.history_problems(self.path, record.criteria)
        stored = json.loads((self.path / "verdict.json").read_text())
        status = stored["status"] if "failed" in stored else never_pass(stored["status"], failed_parts(record))
        before = [status, *((criterion["id"], criterion["status"]) for criterion in stored["criteria"])]
        before += [(answer["question"], answer["status"]) for answer in stored.get("questions", ())]
        judged = judge_run(load_criteria(record.criteria or None), evidence, self.folder, record)
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
    return analyse(tables, record.protocols) | answer_tables(tables, record.protocols, record.questions)


def own_criteria(record: RunRecord) -> DecidedCriteria:
    """The criteria of a run's own verdict, and who decided on them."""
    decision = Decision.model_validate(record.decision) if record.decision else None
    return DecidedCriteria(tuple(load_criteria(record.criteria or None)), decision)


class _Tables(Mapping[str, pd.DataFrame]):
    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._folder.table_names():
            raise KeyError(name)
        return self._folder.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._folder.table_names())

    def __len__(self) -> int:
        return len(self._folder.table_names())

    def __repr__(self) -> str:
        return f"<tables: {', '.join(self) or 'none'}>"


def follows(table: pd.DataFrame, stored: pd.DataFrame, added_later: Sequence[str] = ()) -> bool:
    """Whether a stored table is this one, made anew from what the run holds.

    A table of an earlier version has its metrics by their former names, and lacks those that were added since, and the
    columns `added_later`; nothing else may be missing or other.
    """
    table = table.drop(columns=[name for name in added_later if name in table and name not in stored])
    if "metric" in table and "metric" in stored:
        known = set(stored["metric"])
        names = [stored_name(metric, known) for metric in table["metric"]]
        table = table.assign(metric=[name or "" for name in names])
        table = table[[name is not None for name in names]].reset_index(drop=True)
    return same_table(table, stored)


def same_table(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Equal to the last printed digit that another machine's arithmetic keeps."""
    if not len(a) and not len(b):
        return True
    if set(a.columns) == set(b.columns):
        a = a[list(b.columns)]
    try:
        pd.testing.assert_frame_equal(_blank(a), _blank(b), check_dtype=False, rtol=1e-9, atol=1e-12)
    except AssertionError:
        return False
    return True


def _blank(table: pd.DataFrame) -> pd.DataFrame:
    """With None for every missing value of no number: a stored table knows no other."""
    mixed = [name for name in table.columns if table[name].dtype == object]
    return table.assign(**{name: table[name].where(table[name].notna(), None) for name in mixed})


def write_history(run: Path, entries: Sequence[history.Entry]) -> None:
    """Write the history of verdicts of the run in a folder; nothing where there is no entry."""
    if entries:
        write_json(run / HISTORY, [entry.dump() for entry in entries])


def utc_now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
