"""What a criterion rests on: the files of a run, its models and its data, each with the hash that names its content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from roadworthy.core.record import AskedCase, CaseRecord, RunRecord
from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics.base import DROP

CONDITIONS = "conditions"
"""The kind of the case that holds what is recorded of each image: it says nothing of a model."""
KINDS = ("table", "readouts", "model", "data", "baseline")
"""The kinds of artefacts, in the order in which they are listed."""


@dataclass(frozen=True)
class Artefact:
    """Something a claim rests on: its kind, what it is, its file in the run (or elsewhere), and its SHA-256.

    Of data and of models that are no file, `sha256` is the fingerprint of their content. It is empty where none is
    recorded, as for a case that failed; `remark` says why.
    """

    kind: str
    name: str
    file: str = ""
    sha256: str = ""
    remark: str = ""

    def line(self, digits: int | None = None) -> str:
        """In a line: what it is, and its hash or the first digits of it.

        >>> Artefact("model", "model v2", "/models/v2.onnx", "cfd4c77368b7f0").line(6)
        'model v2, v2.onnx: SHA-256 cfd4c7'
        """
        label = "SHA-256" if self.file else "fingerprint"
        named = f"{self.name}, {PurePath(self.file).name}" if self.kind == "model" and self.file else self.name
        known = f"{label} {self.sha256[:digits]}" if self.sha256 else self.remark or "no hash recorded"
        return f"{named}: {known}"

    def to_json(self) -> dict[str, str]:
        """As JSON holds it, without what is empty."""
        return {name: value for name, value in vars(self).items() if value}


def artefacts_of(
    entry: Mapping[str, Any],
    record: RunRecord,
    protocol: str,
    *,
    where: Mapping[str, Any] | None = None,
    baseline: Mapping[str, str] | None = None,
) -> list[Artefact]:
    """What a criterion (an entry of verdict.json), or one of its conditions, rests on.

    protocol   the one that measured it;  where   the condition;  baseline   the run that it was judged against
    """
    cases = _matching(entry, where or {}, [own for own in record.asked() if own[0] == protocol])
    listed = [*_tables(record, protocol), *_readouts(record, cases)]
    models = dict.fromkeys((source, asked.labels.get("model", asked.system)) for _, source, asked, _ in cases)
    for source, name in models:
        known = record.sources[source].models
        if name in known:
            listed += _model(f"{source}/{name}" if source else name, known[name].fingerprint, known[name].files)
    for source in dict.fromkeys(source for _, source, _, _ in cases):
        data = record.sources[source].data
        listed.append(Artefact("data", f"data {data.name}", sha256=data.fingerprint))
    if baseline and entry.get("against"):
        listed.append(Artefact("baseline", f"baseline {baseline['run']}", "run.json", baseline["sha256"]))
    return [*dict.fromkeys(listed)]


_Asked = tuple[str, str, AskedCase, CaseRecord]


def _matching(entry: Mapping[str, Any], where: Mapping[str, Any], cases: Sequence[_Asked]) -> list[_Asked]:
    """The cases that a criterion speaks of, as far as the record can tell; all of the protocol where it cannot."""
    wanted = {**entry["where"], **where}
    cases = [own for own in cases if own[3].kind != CONDITIONS] or cases
    of_models = [own for own in cases if _fits(own, wanted, ("source", "model"))] or [*cases]
    chosen = [own for own in of_models if _fits(own, wanted)] or of_models
    if str(entry["metric"]).endswith(DROP):
        clean = [own for own in of_models if own[3].stimulus.name == UNDISTURBED and own not in chosen]
        chosen = [*clean, *chosen]
    return chosen


def _fits(own: _Asked, wanted: Mapping[str, Any], columns: Sequence[str] | None = None) -> bool:
    _, source, asked, case = own
    known: dict[str, Any] = {
        "source": source,
        "model": asked.labels.get("model", asked.system),
        "shift": case.stimulus.name,
        "level": case.stimulus.level,
        "ood_set": case.stimulus.name,
        **asked.labels,
    }
    read = {name: value for name, value in wanted.items() if name in known and (columns is None or name in columns)}
    return all(
        str(known[name]) in [str(one) for one in (value if isinstance(value, list) else [value])]
        for name, value in read.items()
    )


def _tables(record: RunRecord, protocol: str) -> Iterator[Artefact]:
    """The main table of a protocol, or all of its tables where none has its name."""
    files = [name for name in record.files if name.startswith("tables/") and name.endswith(".parquet")]
    own = [name for name in files if name == f"tables/{protocol}.parquet"]
    for name in own or [name for name in files if name.startswith(f"tables/{protocol}_")]:
        yield Artefact("table", f"table {name[len('tables/') : -len('.parquet')]}", name, record.files[name])


def _readouts(record: RunRecord, cases: Sequence[_Asked]) -> Iterator[Artefact]:
    for _, _, asked, case in cases:
        stimulus = case.stimulus
        shown = f"{stimulus.name} {stimulus.level:g}" if stimulus.level else stimulus.name
        repeat = f", repeat {stimulus.repeat}" if stimulus.repeat else ""
        manifest = f"{case.folder}/manifest.json"
        failed = f"failed: {case.reason}" if case.status == "failed" else ""
        yield Artefact(
            "readouts", f"{asked.system} at {shown}{repeat}", manifest, record.files.get(manifest, ""), failed
        )


def _model(name: str, fingerprint: str, files: Mapping[str, str]) -> list[Artefact]:
    if files:
        return [Artefact("model", f"model {name}", file, sha) for file, sha in files.items()]
    return [Artefact("model", f"model {name}", sha256=fingerprint)]
