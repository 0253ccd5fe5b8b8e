"""The record of a run, run.json: one typed form for all readers; earlier forms are converted here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from roadworthy.core.checked import Stamp, changed_file, read_checked, stamp_of
from roadworthy.core.errors import DamagedFile, InputError
from roadworthy.core.files import check_name_inside
from roadworthy.core.first_schema import from_first_schema
from roadworthy.core.hashing import SEAL, is_sealed
from roadworthy.core.types import Stimulus
from roadworthy.core.validation import explain

RECORD = "run.json"
HISTORY = "verdicts.json"
"""Every verdict that the run was given: see `verdict.history`."""
SCHEMA = 2
FIRST_SCHEMA = 1
"""The oldest schema that can be read; runs of an older one than the present are not written to."""

NameInside = Annotated[str, AfterValidator(check_name_inside)]
"""A name in a record that a path is made of: it must stay in the run."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class DataRecord(_Part):
    """The test data of a source, or one of its `recorded` sets."""

    name: str
    class_names: Annotated[list[str], Field(min_length=1)]
    fingerprint: str = ""
    images: int = 0
    groups: int = 0
    size: list[int] = []
    bad_images: list[list[str]] = []
    notes: list[str] = []
    seen: list[str] = []
    validation_seen: list[str] = []
    """Ids of test images, and of validation images, that are training images too."""
    recorded: dict[str, DataRecord] = {}


class ModelRecord(_Part):
    """A model: what it is known by, and by how much its answers change when it is asked again.

    `artifacts` are the hashes of those it is made of; several where it is trained anew for each repeat. `origin` is its
    kind, as a study names it, `files` the SHA-256 of each file that the study names for it, `input` and `outputs` what
    its adapter gives it and takes from it; they are empty where they are not known. `found` is what the check before
    the run found wrong, or could not try, in sentences. `isolated`: whether it ran in a process of its own.
    """

    fingerprint: str
    origin: str = ""
    files: dict[str, str] = {}
    input: str = ""
    outputs: str = ""
    capabilities: list[str] = []
    changes_by: float = 0.0
    found: list[str] = []
    isolated: bool = False
    artifacts: list[str] = []


class SourceRecord(_Part):
    """A source: its data and the models made for it."""

    data: DataRecord
    models: dict[str, ModelRecord]


class StimulusRecord(_Part):
    """What was shown: see `Stimulus`."""

    data: str
    name: str
    level: int | float
    parameters: dict[str, Any]
    repeat: int
    seed: int
    code: str = ""

    def value(self) -> Stimulus:
        """The stimulus itself."""
        return Stimulus(**self.model_dump())


class CaseRecord(_Part):
    """A case, listed once however many protocols ask for it. `folder` is where its readouts lie in the run."""

    folder: NameInside
    system: str
    kind: str = "model"
    stimulus: StimulusRecord
    status: Literal["done", "failed"] = "done"
    reason: str = ""


class ArtifactRecord(_Part):
    """An artifact: its recipe, and how good it is, or why it could not be built."""

    system: str
    builder: str
    parameters: dict[str, Any]
    seed: int = 0
    competence: dict[str, Any] = {}
    status: Literal["done", "failed"] = "done"
    reason: str = ""


class AskedCase(_Part):
    """A case that a protocol asks for: its hash, the name of the system, and what the protocol notes of it."""

    case: str
    system: str
    labels: dict[str, str] = {}


class SourcePart(_Part):
    """What a protocol asks of one source; `context` is what its tables need besides readouts, in the protocol's form.

    `left_out` are the systems that do not answer in the columns it needs, with the reason.
    """

    cases: list[AskedCase]
    context: dict[str, Any] = {}
    left_out: dict[str, str] = {}


class ProtocolRecord(_Part):
    """A protocol of the run: its settings, and its part of every source."""

    settings: dict[str, Any] = {}
    sources: dict[str, SourcePart]


class PluginRecord(_Part):
    """A plugin: a Python file with its whole path, or `package.module`, and the SHA-256 of its files.

    Names of files start from the folder of the plugin. They are its own and those that it imports.
    """

    plugin: Annotated[str, Field(min_length=1)]
    files: dict[str, str] = {}


class BaselineRecord(_Part):
    """The run that a new version was tested against: as it was named, and the SHA-256 of its run.json at that time.

    `artifacts` and `cases` are how many were taken over from it, `damaged` those of it that had to be made again;
    `not_compared` is why the two, or some models, could not be compared. `beside` is the way from the folder of the run
    to that of the baseline, where both were folders of one machine.
    """

    run: str
    sha256: str
    beside: str | None = None
    artifacts: int = 0
    cases: int = 0
    damaged: list[str] = []
    not_compared: str = ""


class RunRecord(_Part):
    """All that run.json says. A study of one source has it under the name ''."""

    schema_: Annotated[int, Field(alias="schema")] = SCHEMA
    study: str
    seed: int
    created: str
    finished: str | None = None
    environment: dict[str, Any]
    earlier_environments: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    plugins: list[PluginRecord] = []
    baseline: BaselineRecord | None = None
    sources: Annotated[dict[str, SourceRecord], Field(min_length=1)]
    criteria: list[Any]
    decision: dict[str, Any] = {}
    """Who decided on the thresholds of the criteria, where their file says it."""
    questions: list[str] = []
    """The questions that the study asks: see `verdict.questions`."""
    cases: dict[str, CaseRecord]
    artifacts: dict[str, ArtifactRecord] = {}
    protocols: dict[str, ProtocolRecord]
    files: dict[NameInside, str]

    @model_validator(mode="after")
    def _lists_what_is_asked(self) -> RunRecord:
        for name, protocol in self.protocols.items():
            for source, part in protocol.sources.items():
                if source not in self.sources:
                    raise ValueError(f"protocols: {name} speaks of the source {source!r}, which is not listed")
                for asked in part.cases:
                    if asked.case not in self.cases:
                        raise ValueError(f"protocols: {name} asks for the case {asked.case!r}, which is not listed")
        return self

    @property
    def models(self) -> dict[str, ModelRecord]:
        """The models of all sources, by their name, and by that of the source where there are several."""
        return {
            f"{source}/{name}" if source else name: model
            for source, part in self.sources.items()
            for name, model in part.models.items()
        }

    @property
    def first(self) -> SourceRecord:
        """The first source, the only one of most runs."""
        return next(iter(self.sources.values()))

    def asked(self) -> Iterator[tuple[str, str, AskedCase, CaseRecord]]:
        """Every case of every protocol: (protocol, source, as it was asked for, the case)."""
        for protocol, protocol_record in self.protocols.items():
            for source, source_part in protocol_record.sources.items():
                for asked in source_part.cases:
                    yield protocol, source, asked, self.cases[asked.case]

    def files_by_folder(self) -> dict[str, dict[str, str]]:
        """The SHA-256 of its files by their name, folder by folder."""
        folders: dict[str, dict[str, str]] = {}
        for name, sha in self.files.items():
            folder, _, own = name.rpartition("/")
            folders.setdefault(folder, {})[own] = sha
        return folders

    def as_stored(self) -> RunRecord:
        """The same record as it is read back from JSON, which knows no tuples: to be compared with one on disk."""
        return RunRecord.model_validate(json.loads(json.dumps(self.dump())))

    def dump(self) -> dict[str, Any]:
        """As JSON holds it; `plugins`, `decision` and `questions` only where there are some."""
        without = {name for name in ("plugins", "decision", "questions") if not getattr(self, name)}
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=without)


class Recorded(NamedTuple):
    """The SHA-256 of files by their name in the run, as run.json has them.

    With it go whether the run came to its end, and whether run.json is as it was written.
    """

    files: Mapping[str, str]
    finished: bool
    as_written: bool


MOST_RUNS = 16
"""Runs of which it is kept what their run.json records."""
_recorded: dict[Path, tuple[Stamp, Recorded]] = {}


def read_record(run: Path, *, changed_too: bool = False) -> RunRecord:
    """The record of the run in a folder; an `InputError` where it is damaged, or of a schema that is not known here.

    So is one that was changed since it was written, by its seal, unless it is wanted with what somebody `changed_too`:
    by who says what is wrong with the run.
    """
    path = run / RECORD
    try:
        stamp = stamp_of(path)
        content = json.loads(path.read_text(encoding="utf-8"))
        known = _recorded[run][1] if run in _recorded and _recorded[run][0] == stamp else None
        as_written = known.as_written if known else not isinstance(content, dict) or is_sealed(content)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read, it is damaged ({error}): run the same command into this folder again, what is "
            "intact is kept"
        ) from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, int) or not FIRST_SCHEMA <= schema <= SCHEMA:
        known_here = f"{FIRST_SCHEMA} to {SCHEMA}"
        raise InputError(f"{run} was written with run schema {schema}; this version reads schemas {known_here}")
    content.pop(SEAL, None)
    try:
        record = RunRecord.model_validate(from_first_schema(content, run) if schema == FIRST_SCHEMA else content)
    except ValidationError as error:
        raise InputError(f"{path} was changed or is incomplete: {explain(error, RunRecord)}") from None
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        raise InputError(f"{path} was changed or is incomplete: {error!r}") from None
    if not known:
        if len(_recorded) >= MOST_RUNS:
            _recorded.clear()
        _recorded[run] = stamp, Recorded(record.files, bool(record.finished), as_written)
    if not (as_written or changed_too):
        raise changed_file(path)
    return record


def recorded_files(run: Path) -> Recorded:
    """What run.json of a run records of its files, read once for as long as it stays the same; nothing without one."""
    try:
        stamp = stamp_of(run / RECORD)
    except OSError:
        return Recorded({}, False, True)
    known = _recorded.get(run)
    if known is not None and known[0] == stamp:
        return known[1]
    record = read_record(run, changed_too=True)
    kept = _recorded.get(run)
    return kept[1] if kept else Recorded(record.files, bool(record.finished), False)


def recorded_hash(run: Path, name: str) -> str | None:
    """The SHA-256 that a file of a run must have, by its name in it; a `DamagedFile` where it is not part of the run.

    None where none is known: the run did not come to its end yet.
    """
    files, finished, as_written = recorded_files(run)
    if not as_written:
        raise changed_file(run / RECORD)
    if not finished:
        return None
    if name not in files:
        raise DamagedFile(f"{run / name} is not part of the run: look with roadworthy verify, and remove it")
    return files[name]


def read_recorded(run: Path, name: str) -> bytes:
    """The content of a file of a run by its name in it, as it was written; a `DamagedFile` where it is not."""
    return read_checked(run / name, recorded_hash(run, name))
