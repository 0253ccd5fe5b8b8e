"""The history of a run's verdicts: what was judged, by which criteria, when, how, and which verdict is its own.

Every entry holds the SHA-256 of its criteria and of its verdict, and one of itself with the entry before it, so that no
entry can be changed or taken out alone. What is lost of a history has an entry of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.record import HISTORY, RECORD, DataRecord, RunRecord, read_record, read_recorded, recorded_files
from roadworthy.core.validation import explain, read_yaml
from roadworthy.verdict.criteria import Criterion, Decision, load_criteria
from roadworthy.verdict.judge import VerdictStatus

Made = Literal["study", "judged", "replaced", "lost"]
"""How a verdict came about: by the study's own criteria when it was run, by others for once (it is not the run's own),
or by others that were put in place of the run's own. An entry `lost` is no verdict: it says that some are missing."""


class ImageSet(BaseModel):
    """A set of images that was judged, by its content and what it holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fingerprint: str
    images: int
    objects: int

    def counts(self) -> str:
        """How many images of how many objects it holds."""
        images = "1 image" if self.images == 1 else f"{self.images:,} images"
        return f"{images} of {self.objects:,} object{'' if self.objects == 1 else 's'}"


class Subject(BaseModel):
    """What was judged: the seed, the test data and recorded sets by name, the fingerprint of each model."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    seed: int
    data: dict[str, ImageSet]
    models: dict[str, str]

    @classmethod
    def of(cls, record: RunRecord) -> Self:
        """What a run tested, by its record."""
        sets = {
            name: ImageSet(fingerprint=data.fingerprint, images=data.images, objects=data.groups)
            for source, part in record.sources.items()
            for name, data in _named_sets(source, part.data)
        }
        return cls(seed=record.seed, data=sets, models={n: m.fingerprint for n, m in record.models.items()})

    def changes(self, before: Subject) -> list[str]:
        """What is other than it was `before`, in a few words each.

        >>> signs = ImageSet(fingerprint="a", images=40, objects=40)
        >>> fewer = ImageSet(fingerprint="b", images=38, objects=38)
        >>> first = Subject(seed=0, data={"test data": signs}, models={"m": "c"})
        >>> Subject(seed=0, data={"test data": fewer}, models={"m": "c"}).changes(first)
        ['test data: 38 images of 38 objects, before 40 images of 40 objects']
        """
        words = []
        for name in dict.fromkeys([*before.data, *self.data]):
            old, new = before.data.get(name), self.data.get(name)
            if old is None or new is None:
                words.append(f"{name}: {'left out' if old else 'added'}")
            elif old.counts() != new.counts():
                words.append(f"{name}: {new.counts()}, before {old.counts()}")
            elif old != new:
                words.append(f"{name}: other content, labels, names or order, as before {new.counts()}")
        for name in dict.fromkeys([*before.models, *self.models]):
            if (was := before.models.get(name)) != (now := self.models.get(name)):
                words.append(
                    f"model {name}: {'left out' if now is None else 'added' if was is None else 'another one'}"
                )
        return [*words, *([f"seed {self.seed}, before {before.seed}"] if self.seed != before.seed else [])]


def _named_sets(source: str, data: DataRecord) -> list[tuple[str, DataRecord]]:
    """The test data of a source and its recorded sets, each with a name that does not depend on where it lies."""
    prefix = f"{source}: " if source else ""
    recorded = [(f"{prefix}recorded set {name}", own) for name, own in data.recorded.items()]
    return [(f"{prefix}test data", data), *recorded]


class Entry(BaseModel):
    """One verdict of a run. `sha256` is that of all else in the entry and of the `sha256` before it.

    `criteria_file` is the file that the criteria were read from, as it was named; empty where they came as a list, or
    from a version that did not note it. `other_code` names the plugins that it was made with other code of than the
    run. `decision` says who decided on the thresholds, where the file of the criteria does. `subject` is what was
    judged; None where a version did not note it. `lost` says what is missing of the history before this entry.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    date: str
    made: Made
    status: VerdictStatus
    criteria: list[dict[str, Any]]
    criteria_sha256: str
    criteria_file: str = ""
    verdict_sha256: str
    other_code: list[str] = []
    decision: Decision | None = None
    subject: Subject | None = None
    lost: str = ""
    sha256: str = ""

    @field_validator("criteria")
    @classmethod
    def _are_criteria(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for criterion in value:
            Criterion.model_validate(criterion)
        return value

    @property
    def own(self) -> bool:
        """Whether it was made the run's own verdict."""
        return self.made in ("study", "replaced")

    def asked(self) -> list[Criterion]:
        """Its criteria."""
        return [Criterion.model_validate(criterion) for criterion in self.criteria]

    def sealed(self, before: str) -> Entry:
        """The same with its hash, after an entry with the hash `before` (empty for the first)."""
        left_out = {"sha256"} if self.criteria_file else {"sha256", "criteria_file"}
        content = {key: value for key, value in self.dump().items() if key not in left_out}
        return self.model_copy(update={"sha256": digest([content, before])})

    def dump(self) -> dict[str, Any]:
        """As JSON holds it; what came later only where there is some, so that earlier entries keep their hash."""
        later = ("other_code", "decision", "subject", "lost")
        return self.model_dump(exclude={name for name in later if not getattr(self, name)})


_ENTRIES = TypeAdapter(list[Entry])


def read_history(run: Path, *, changed_too: bool = False) -> list[Entry]:
    """The verdicts of a run, oldest first; of a run from before there was a history, the one that it has.

    One that is not as run.json records it is refused, unless it is wanted with what was `changed_too`: by who goes on
    with it. `history_problems` still tells, since every entry has a seal.
    """
    path = run / HISTORY
    if not path.is_file():
        return _without_history(run)
    try:
        return _ENTRIES.validate_json(path.read_bytes() if changed_too else read_recorded(run, HISTORY))
    except ValidationError as error:
        reason = explain(error, Entry)
        raise InputError(f"{path} cannot be read: {reason}; check the run with roadworthy verify") from None


def lasting_history(run: Path, date: str) -> tuple[list[Entry], str]:
    """The history of a run that is to be made anew, and what was found to be lost of it: then its last entry says so.

    Lost are verdicts where the history cannot be read, or is missing or other than run.json of a finished run has it.
    """
    lost = ""
    try:
        history = read_history(run)
        files, finished, _ = recorded_files(run)
        if finished and HISTORY in files and not (run / HISTORY).is_file():
            lost = f"{HISTORY} was removed, so that verdicts before this may be missing"
    except InputError:
        lost = f"{HISTORY} or {RECORD} was changed or damaged, so that verdicts before this may be missing"
        try:
            history = read_history(run, changed_too=True)
        except InputError:
            history = []
    if lost:
        entry = make_entry({"status": "none"}, [], "lost", date).model_copy(update={"lost": lost})
        history = [*history, entry.sealed(history[-1].sha256 if history else "")]
    return history, lost


def _without_history(run: Path) -> list[Entry]:
    if not (run / "verdict.json").is_file():
        return []
    try:
        verdict, record = (json.loads((run / name).read_bytes()) for name in ("verdict.json", "run.json"))
        date = record.get("finished", record["created"])
        subject = Subject.of(read_record(run, changed_too=True))
        first = make_entry(verdict, record["criteria"], "study", date, subject=subject)
        same = study_criteria(run) in (None, first.asked())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the verdict of {run} cannot be read: {error}; check it with roadworthy verify") from None
    return [(first if same else first.model_copy(update={"made": "replaced", "date": "date not known"})).sealed("")]


def study_criteria(run: Path) -> list[Criterion] | None:
    """The criteria of the study that the run holds the results of; None where it cannot be read."""
    try:
        study = read_yaml(run / "study.yaml", "study")
        return load_criteria(study.get("criteria")) if isinstance(study, dict) else None
    except InputError:
        return None


def make_entry(
    verdict: Mapping[str, Any],
    criteria: Sequence[Mapping[str, Any]],
    made: Made,
    date: str,
    file: str = "",
    other_code: Sequence[str] = (),
    *,
    subject: Subject | None = None,
) -> Entry:
    """An entry for a verdict (the content of verdict.json) by criteria, of a file; to be sealed when it is added.

    `other_code` are the plugins whose code was other than the run's, `subject` is what was judged.
    """
    plain = [dict(criterion) for criterion in criteria]
    return Entry(
        date=date,
        made=made,
        status=verdict["status"],
        criteria=plain,
        criteria_sha256=digest(plain),
        criteria_file=file,
        verdict_sha256=digest(verdict),
        other_code=[*other_code],
        decision=Decision.model_validate(verdict["decision"]) if "decision" in verdict else None,
        subject=subject,
    )


def with_entry(history: Sequence[Entry], entry: Entry) -> list[Entry]:
    """The history with one more entry; the same judgement again, since the run's own verdict was made, adds nothing.

    An equal verdict on other data, of another model or with another seed is another judgement.
    """
    start = max((index for index, earlier in enumerate(history) if earlier.own), default=0)
    judged = (entry.verdict_sha256, entry.other_code, entry.subject)
    same = [old for old in history[start:] if (old.verdict_sha256, old.other_code, old.subject) == judged]
    if any(not entry.own or old.made == "study" or (old.own and entry.made == "replaced") for old in same):
        return [*history]
    return [*history, entry.sealed(history[-1].sha256 if history else "")]


def own_entry(history: Sequence[Entry]) -> Entry | None:
    """The entry of the run's own verdict."""
    return next((entry for entry in reversed(history) if entry.own), None)


def changes_since(history: Sequence[Entry], entry: Entry) -> list[str]:
    """What is other in an entry of a history than in the run's own verdict before it; nothing where it is the first.

    Where an entry comes from a version that did not note what was judged, that is said in place of it.
    """
    before = own_entry(history[: history.index(entry)])
    if before is None or entry.made == "lost":
        return []
    criteria = ["other criteria"] if entry.criteria_sha256 != before.criteria_sha256 else []
    if entry.subject is None or before.subject is None:
        return [*criteria, "data, models and seed are not known of both"]
    return [*entry.subject.changes(before.subject), *criteria]


def history_lines(history: Sequence[Entry]) -> list[str]:
    """What a reader of the run's own verdict must know of those before it: what is other since, and what is lost."""
    own, lines = own_entry(history), [entry.lost for entry in history if entry.lost]
    before = own_entry(history[: history.index(own)]) if own else None
    if own is not None and before is not None:
        known = changes_since(history, own) or ["data, models, seed and criteria are the same"]
        lines.insert(0, f"since the verdict of {before.date} ({before.status}): {'; '.join(known)}")
    return lines


def study_entry(history: Sequence[Entry]) -> Entry | None:
    """The entry of the verdict by the criteria that the study was last run with."""
    return next((entry for entry in reversed(history) if entry.made == "study"), None)


def other_criteria(history: Sequence[Entry]) -> bool:
    """Whether the run's own verdict is by other criteria than those that the study was run with."""
    own, study = own_entry(history), study_entry(history)
    return own is not None and (study is None or own.criteria_sha256 != study.criteria_sha256)


def history_problems(run: Path, criteria: Sequence[Mapping[str, Any]]) -> list[str]:
    """What does not fit: an entry that was changed, a verdict.json or criteria (of run.json) without an entry."""
    stored = json.loads((run / "verdict.json").read_bytes())
    if not (run / HISTORY).is_file():
        return [f"{HISTORY} is missing"] if "failed" in stored else []
    history = read_history(run)
    problems, before = [], ""
    for number, entry in enumerate(history, start=1):
        if entry.sealed(before).sha256 != entry.sha256 or digest(entry.criteria) != entry.criteria_sha256:
            problems.append(f"{HISTORY}: entry {number} was changed")
        before = entry.sha256
    own, study, asked = own_entry(history), study_entry(history), study_criteria(run)
    if own is None or own.verdict_sha256 != digest(stored) or own.status != stored["status"]:
        problems.append(f"verdict.json is not the run's own verdict by {HISTORY}")
    if own is None or own.criteria_sha256 != digest([*criteria]):
        problems.append(f"the criteria of run.json are not those of the run's own verdict by {HISTORY}")
    if own is not None and own.subject not in (None, Subject.of(read_record(run, changed_too=True))):
        problems.append(f"data, models or seed of run.json are not those of the run's own verdict by {HISTORY}")
    if study is not None and asked is not None and study.asked() != asked:
        problems.append(f"the criteria of study.yaml are not those that the study was run with by {HISTORY}")
    return problems
