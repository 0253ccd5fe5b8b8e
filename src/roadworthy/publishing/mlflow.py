"""A run in MLflow: one MLflow run with parameters, metrics, tags and files; the same run is logged once."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from roadworthy.core.errors import InputError, MissingExtra, first_line, foreign_code
from roadworthy.publishing.content import HASH_TAG, Content

EXPERIMENT = "roadworthy"
"""The experiment that runs are logged to unless another is named."""
NOTE = "mlflow.note.content"
"""The tag that MLflow shows as the description of a run, in Markdown."""
LONGEST_VALUE = {"params": 6000, "tags": 5000}
AT_ONCE = {"metrics": 500, "params": 100, "tags": 100}
"""How many entries MLflow takes in one call."""


@dataclass(frozen=True)
class Published:
    """An MLflow run: its id, the experiment, where its files lie, and whether it was there before.

    `left_out` are figures without a value, each with the reason.
    """

    run_id: str
    experiment: str
    artifacts: str
    existed: bool = False
    metrics: int = 0
    files: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)


def log_to_mlflow(
    content: Content, tracking_uri: str, *, experiment: str = EXPERIMENT, again: bool = False
) -> Published:
    """Log what is published of a run to the MLflow store at a tracking URI, such as `sqlite:///mlflow.db`.

    A run that is there already, known by the hash of its run.json, is not logged another time unless `again` asks for
    it. The experiment is made where there is none of that name. Where logging fails, the MLflow run is marked failed.
    """
    _check_uri(tracking_uri)
    if not experiment.strip():
        raise InputError("an experiment of MLflow needs a name: give one with `experiment=`")
    client_class = _import_client()
    with _of_mlflow(tracking_uri):
        client = client_class(tracking_uri=tracking_uri)
        known = client.get_experiment_by_name(experiment)
        experiment_id = known.experiment_id if known else client.create_experiment(experiment)
        query = f"tags.`{HASH_TAG}` = '{content.sha256}' and attributes.status = 'FINISHED'"
        earlier = [] if again else client.search_runs([experiment_id], query, max_results=1)
        if earlier:
            return Published(earlier[0].info.run_id, experiment, earlier[0].info.artifact_uri, existed=True)
        return _logged(client, client.create_run(experiment_id, run_name=content.name), content, experiment)


def _check_uri(uri: str) -> None:
    """Refuse what is a path or nothing at all: MLflow would make a folder of it."""
    if not re.match(r"[a-zA-Z][a-zA-Z0-9+-]*:", uri) and uri != "databricks":
        example = f"sqlite:///{uri}" if uri else "sqlite:///mlflow.db"
        raise InputError(f"{uri!r} is not a tracking URI of MLflow: write one such as {example} or https://server:5000")


def _import_client() -> Any:
    """The client of MLflow; its report of use to its makers is off unless the process uses MLflow already."""
    if "mlflow" not in sys.modules:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow import MlflowClient
    except ImportError:
        raise MissingExtra("runs in MLflow", "mlflow") from None
    return MlflowClient


@contextmanager
def _of_mlflow(uri: str) -> Iterator[None]:
    """A block that talks to MLflow: its notes on its own tables are not shown, its errors are one sentence."""

    def explain(error: BaseException) -> InputError:
        return InputError(
            f"MLflow at {_without_password(uri)} did not take the run: {_without_password(first_line(error))}"
        )

    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [logger.level for logger in loggers]
    tries = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
    given = os.environ.get(tries)
    os.environ.setdefault(tries, "2")  # its own seven take four minutes to say that nobody answers
    try:
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        with foreign_code(explain):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if given is None:
            os.environ.pop(tries, None)


def _without_password(text: str) -> str:
    """A text in which no address holds a name and password, nor what follows its question mark.

    >>> _without_password("https://me:se/cr@et@server:5000/x?token=abc is closed")
    'https://***@server:5000/x?*** is closed'
    """
    without_user = re.sub(r"(?<=://)\S+@", "***@", text)
    return re.sub(r"(?<=://)([^\s?]*)\?\S*", r"\1?***", without_user)


def _logged(client: Any, run: Any, content: Content, experiment: str) -> Published:
    """Log everything to an MLflow run that was just made; it counts once it is finished."""
    run_id = run.info.run_id
    try:
        _log_values(client, run_id, content)
        for name, path in content.files.items():
            client.log_artifact(run_id, str(path), _folder_of(name))
        with tempfile.TemporaryDirectory() as folder:
            for name, text in content.texts.items():
                path = Path(folder, PurePosixPath(name).name)
                path.write_text(text, encoding="utf-8")
                client.log_artifact(run_id, str(path), _folder_of(name))
                path.unlink()
        client.set_terminated(run_id, "FINISHED")
    except BaseException:
        with suppress(Exception):  # it may be out of reach by now
            client.set_terminated(run_id, "FAILED")
        raise
    return Published(
        run_id,
        experiment,
        run.info.artifact_uri,
        metrics=len(content.metrics),
        files=len(content.files) + len(content.texts),
        left_out=content.left_out,
    )


def _folder_of(name: str) -> str | None:
    parent = str(PurePosixPath(name).parent)
    return None if parent == "." else parent


def _log_values(client: Any, run_id: str, content: Content) -> None:
    """Log metrics, parameters and tags, so many at once as MLflow takes."""
    from mlflow.entities import Metric, Param, RunTag

    now = int(time.time() * 1000)
    note = content.texts.get("summary.md", "")
    tags = {**content.tags, **({NOTE: note} if note else {})}
    entries: dict[str, list[Any]] = {
        "metrics": [Metric(name, value, now, 0) for name, value in content.metrics.items()],
        "params": [Param(name, value[: LONGEST_VALUE["params"]]) for name, value in content.parameters.items()],
        "tags": [RunTag(name, value[: LONGEST_VALUE["tags"]]) for name, value in tags.items()],
    }
    for kind, own in entries.items():
        for start in range(0, len(own), AT_ONCE[kind]):
            client.log_batch(run_id, **{kind: own[start : start + AT_ONCE[kind]]})
