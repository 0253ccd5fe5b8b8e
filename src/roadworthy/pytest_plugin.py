"""The pytest plugin: a fixture `roadworthy` that evaluates models, and criteria as tests of a stored run.

It is found by its entry point and imports nothing heavy until it is used. With `--roadworthy-run RUN` every criterion
of a file such as criteria.yaml is a test of its own, which fails with the figures that decide it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from roadworthy.stored import Run
    from roadworthy.verdict import Verdict
    from roadworthy.verdict.judge import Finding

FILES = ("criteria.yaml", "criteria.yml")
"""Names of the files that hold criteria, unless the ini option `roadworthy_criteria` has others."""
INCONCLUSIVE = ("fail", "xfail")
MARKER = "roadworthy"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin, on the command line and in the ini file."""
    group = parser.getgroup("roadworthy", "criteria of an image classifier as tests")
    group.addoption("--roadworthy-run", metavar="RUN", help="Judge this run by the criteria files that are collected.")
    group.addoption(
        "--roadworthy-inconclusive",
        choices=INCONCLUSIVE,
        help="What a criterion is that the data cannot decide: a failure (default), or an expected one.",
    )
    group.addoption(
        "--roadworthy-trust", action="store_true", help="Run the code of plugins that the run was made with."
    )
    parser.addini("roadworthy_run", "The run to judge; a relative path starts from the ini file.")
    parser.addini("roadworthy_inconclusive", "What an inconclusive criterion is: fail or xfail.", default="fail")
    parser.addini("roadworthy_criteria", "Names of criteria files, such as *_criteria.yaml.", "args", list(FILES))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that the tests of criteria have, and check what the ini file says."""
    config.addinivalue_line("markers", f"{MARKER}: a criterion of a roadworthy run")
    if _inconclusive(config) not in INCONCLUSIVE:
        known = " or ".join(INCONCLUSIVE)
        raise pytest.UsageError(f"roadworthy_inconclusive is {known}, not {_inconclusive(config)!r}")


def _inconclusive(config: pytest.Config) -> str:
    return str(config.getoption("--roadworthy-inconclusive") or config.getini("roadworthy_inconclusive"))


def _run_of(config: pytest.Config) -> str:
    """The run to judge, by its whole path or its address; empty where none is named."""
    from_here: str | None = config.getoption("--roadworthy-run")
    named = from_here or str(config.getini("roadworthy_run"))
    if not named:
        return ""
    from roadworthy.core.remote import absolute_location

    return str(absolute_location(named, config.invocation_params.dir if from_here else config.rootpath))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CriteriaFile | None:
    """A file of criteria, where a run is named that they can judge."""
    names = parent.config.getini("roadworthy_criteria")
    if not any(fnmatch(file_path.name, name) for name in names) or not _run_of(parent.config):
        return None
    return CriteriaFile.from_parent(parent, path=file_path)


class CriteriaFile(pytest.File):
    """A file of criteria: a test for each, and one for each question of the run and for each part that failed."""

    _opened: Run | None = None
    _verdict: Verdict | None = None

    @property
    def run(self) -> Run:
        """The run that is judged, opened once."""
        if self._opened is None:
            from roadworthy.stored import open_run

            self._opened = open_run(_run_of(self.config), trust=self.config.getoption("--roadworthy-trust"))
        return self._opened

    @property
    def verdict(self) -> Verdict:
        """What follows for the run from these criteria, judged once; the run is not changed."""
        if self._verdict is None:
            self._verdict = self.run.verdict(self.path)
        return self._verdict

    def collect(self) -> Iterator[pytest.Item]:
        """The tests; a file or a run that cannot be read is an error of the collection, in one sentence."""
        from roadworthy.core.errors import RoadworthyError
        from roadworthy.verdict import failed_parts, load_criteria

        try:
            names = [criterion.id for criterion in load_criteria(self.path)]
            self.run.folder.check_finished()
            record = self.run.record
        except RoadworthyError as error:
            raise self.CollectError(str(error)) from None
        for name in names:
            yield CriterionTest.from_parent(self, name=name)
        for question in record.questions:
            yield QuestionTest.from_parent(self, name=f"question: {question}")
        for failed in failed_parts(record):
            yield FailedPart.from_parent(self, name=f"failed: {failed.name}", reason=failed.reason)


class NotMet(Exception):
    """A criterion that does not pass; the message has the figures."""


class _Judged(pytest.Item):
    """A test of a run, which passes, fails or is inconclusive."""

    parent: CriteriaFile

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.add_marker(MARKER)

    def end(self, status: str, sentences: str) -> None:
        """End the test by a status: nothing for a pass; what is inconclusive is a failure unless options say else."""
        if status == "inconclusive" and _inconclusive(self.config) == "xfail":
            pytest.xfail(sentences)
        if status != "pass":
            raise NotMet(f"{status}: {sentences}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The sentences alone where a criterion is not met or something cannot be read; else what pytest shows."""
        from roadworthy.core.errors import RoadworthyError

        if isinstance(excinfo.value, NotMet | RoadworthyError):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The file and the name that pytest shows."""
        return self.path, None, self.name


class CriterionTest(_Judged):
    """A criterion of the file."""

    def runtest(self) -> None:
        """Judge the run, and end by what follows for this criterion; its figures become properties of the test."""
        findings = self.parent.verdict.findings
        finding = next(one for one in findings if one.criterion.id == self.name)
        self.user_properties += [*figures_of(finding).items()]
        self.end(finding.status, _sentences(finding))


class QuestionTest(_Judged):
    """A question that the study of the run asks."""

    def runtest(self) -> None:
        """End by the answer that follows from the criteria."""
        answers = {f"question: {answer.question}": answer for answer in self.parent.verdict.answers}
        self.end(answers[self.name].status, answers[self.name].because)


class FailedPart(_Judged):
    """A part of the run that failed: such a run never passes."""

    def __init__(self, *, reason: str, **given: Any) -> None:
        super().__init__(**given)
        self.reason = reason

    def runtest(self) -> None:
        """End as inconclusive, with the cause."""
        self.end("inconclusive", self.reason)


def figures_of(finding: Finding) -> dict[str, float | str]:
    """Value, bounds and threshold of the measurement that decides a criterion, as properties of a test."""
    from roadworthy.verdict.why import deciding_row

    row = deciding_row(finding).measurement
    numbers = {"value": row.estimate.value, "lower": row.estimate.lo, "upper": row.estimate.hi}
    where = ", ".join(f"{name} {value}" for name, value in row.where.items())
    return {**numbers, "threshold": finding.criterion.threshold, "where": where}


def _sentences(finding: Finding) -> str:
    """The condition that decides it, every other that is not met, a line each, and the objects that decide it."""
    lines = dict.fromkeys([finding.sentence(), *(row.because for row in finding.rows if row.status != "pass")])
    why = [finding.why.line] if finding.why and finding.why.line else []
    return "\n".join([*lines, *why, *filter(None, [finding.remark])])


class Evaluations:
    """What the fixture `roadworthy` gives: evaluations in folders of their own, made once for equal arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[Any, Run] = {}
        self._kept: list[Any] = []

    def evaluate(self, model: Any, data: Any, **settings: Any) -> Run:
        """Evaluate a model as `roadworthy.evaluate` does, by the suite `quick` unless another is named.

        Files and folders that changed since, and other objects, are evaluated anew; an object that was changed in
        place is not.
        """
        import roadworthy as rw

        if "out" in settings:
            raise rw.InputError("the fixture roadworthy chooses the folder of a run: leave out `out=`")
        settings = {"suite": "quick", **settings}
        key = self._key([model, data, settings])
        if key not in self._runs:
            options = {"progress": rw.no_progress, **settings}
            self._runs[key] = rw.evaluate(model, data, out=self.folder / f"run-{len(self._runs)}", **options)
        return self._runs[key]

    def require(self, run: Run, criteria: str | Path | list[Any] | dict[str, Any]) -> Verdict:
        """Raise an `AssertionError` with the figures unless the run passes these criteria; returns the verdict."""
        verdict = run.verdict(criteria)
        if verdict.status != "pass":
            findings = [finding for finding in verdict.findings if finding.status != "pass"]
            lines = [f"{one.status}: {one.criterion.id}: {_sentences(one)}" for one in findings]
            lines += [f"failed: {part.name}: {part.reason}" for part in verdict.failed]
            raise AssertionError("\n".join([f"the verdict is {verdict.status}", *lines]))
        return verdict

    def _key(self, value: Any) -> Any:
        """What tells arguments apart: text, numbers and files by what they are, other objects by identity."""
        if isinstance(value, Mapping):
            return tuple(sorted((str(name), self._key(own)) for name, own in value.items()))
        if isinstance(value, list | tuple):
            return tuple(self._key(own) for own in value)
        if isinstance(value, str | os.PathLike):
            return _file_key(os.fspath(value))
        if value is None or isinstance(value, bool | int | float):
            return repr(value)
        self._kept.append(value)  # so that no other object gets its identity
        return f"{type(value).__name__} {id(value)}"


def _file_key(name: str) -> str:
    """A text, and names, times and sizes of the file that it may name, or of all files in that folder.

    To an ONNX model belong the files beside it that hold its weights.
    """
    path = Path(name)
    if not name:
        return name
    try:
        is_onnx = path.suffix.lower() == ".onnx"
        files = [path, *(_weights_beside(path) if is_onnx else ())]
        if path.is_dir():
            files = [file for file in path.rglob("*") if file.is_file()]
        known = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(files)]
    except (OSError, ValueError):
        return name
    return f"{path.absolute()} {hashlib.sha256(repr(known).encode()).hexdigest()}"


def _weights_beside(path: Path) -> list[Path]:
    """The files in which an ONNX model keeps its weights; none where it cannot be read."""
    from roadworthy.core.errors import InputError
    from roadworthy.models.onnx import external_files, read_graph

    try:
        return external_files(read_graph(path), path)
    except InputError:
        return []


@pytest.fixture(scope="session")
def roadworthy(tmp_path_factory: pytest.TempPathFactory) -> Evaluations:
    """Evaluations of models in temporary folders: `run = roadworthy.evaluate("m.onnx", "signs/test")`."""
    return Evaluations(tmp_path_factory.mktemp("roadworthy"))
