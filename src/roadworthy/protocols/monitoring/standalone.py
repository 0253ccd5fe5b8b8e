"""The evaluation alone: decisions that were made elsewhere, as a table with a row per image, in the order of a stream.

Columns, of which those in parentheses may be left out:

id, ood              of the image, and whether it is from outside (0 or 1)
label, prediction    numbers or names (3 and 3.0 are the same class, 03 is another); an OOD image without a label is
                     one that no answer to is right
reject or score      1 where the monitor rejects; or its score, higher = more in-distribution, with a `threshold`
(group)              the object that the image shows; without it every image is an object of its own
(benchmark)          rows of ID images without one belong to every benchmark;  (ood_kind): its kind
(monitor), (model)   names, where there are several; `none` and `all` mean something else in the tables
(label_kept)         0 where an OOD image no longer shows what its label says
(confidence)         stands for the score where there is none and `reject` is given
(detection_outcome, system_outcome)   are found anew: `roadworthy monitor decisions` writes them for readers

In a CSV file names are read as text, and only an empty cell is a missing value: `00014`, `NA` and `None` are names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.parquet import parquet_frame
from roadworthy.core.validation import require_file
from roadworthy.protocols.monitoring import table_specs
from roadworthy.protocols.monitoring.courses import event_estimates
from roadworthy.protocols.monitoring.evaluation import Bounds, evaluate, resamples_of, risk_rows
from roadworthy.protocols.monitoring.image_decisions import OUTCOMES
from roadworthy.protocols.monitoring.metrics import ID_METRICS, REJECTED
from roadworthy.protocols.monitoring.names import (
    ALL,
    ALONE,
    DETECTION,
    KINDS,
    MODEL_SCOPE,
    NOVEL_CLASS,
    STREAM,
    SYSTEM,
)
from roadworthy.protocols.monitoring.oracle import Truth
from roadworthy.protocols.monitoring.scenes import Scene
from roadworthy.protocols.monitoring.settings import LEAST_RESAMPLES, BenchmarkNote, Settings
from roadworthy.protocols.monitoring.streams import Stream
from roadworthy.protocols.monitoring.summaries import overall_rows, rank_rows
from roadworthy.protocols.monitoring.watching import Decided, nothing_rejected
from roadworthy.statistics import class_mcc_estimates, proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE, RESAMPLES, no_estimate

Rows = list[dict[str, Any]]
REQUIRED = ("id", "ood", "label", "prediction")
OPTIONAL = ("group", "benchmark", "ood_kind", "monitor", "model", "label_kept", "confidence", "score", "reject")
FOUND_ANEW = OUTCOMES
"""Columns that a table may have and that are not read: they follow from the others."""
ONE = {"model": "model", "monitor": "monitor", "benchmark": "stream"}
"""Names in place of a column that is left out."""
NAMES = ("id", "group", "label", "prediction", "benchmark", "ood_kind", "monitor", "model")
"""Columns that are text, whatever they look like."""
WHOLE_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")


@dataclass(frozen=True)
class _Part:
    """The rows of one monitor on one model in one benchmark."""

    model: str
    benchmark: str
    monitor: str
    scene: Scene
    decided: Decided


def evaluate_decisions(
    table: pd.DataFrame | str | Path,
    *,
    threshold: float | None = None,
    frame_rate: float = 10.0,
    order: str = "blocks",
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, pd.DataFrame]:
    """What decisions that were made elsewhere are worth: the tables of the protocol `monitoring` by name.

    table      a frame, or a CSV or Parquet file, with the columns above; rows are in the order of the stream
    threshold  the score below which an image is rejected, where the table has no column `reject`
    order      of the images, as far as delays are concerned: `random` says that stretches mean nothing

    >>> rows = {"id": ["a", "b"], "ood": [0, 1], "label": [3, 3], "prediction": [3, 5], "reject": [0, 1]}
    >>> tables = evaluate_decisions(pd.DataFrame(rows))
    >>> chosen = tables["monitoring"].query("view == 'system' and part == 'stream' and metric == 'recall'")
    >>> chosen[["monitor", "value"]].values.tolist()
    [['none', 0.0], ['monitor', 1.0]]
    """
    if resamples < LEAST_RESAMPLES:
        raise InputError(f"a bootstrap takes at least {LEAST_RESAMPLES} resamples, not {resamples}")
    frame = _checked(_read(table), threshold)
    settings = Settings.model_validate({"frame_rate": frame_rate, "order": order})
    bounds = Bounds(confidence, resamples, seed)
    parts = [*_parts(frame)]
    rows, risk, events = Rows(), Rows(), Rows()
    seen: set[tuple[str, str]] = set()
    for part in parts:
        names = {"model": part.model, "benchmark": part.benchmark}
        kind = {"ood_kind": part.scene.note.kind, "near": False}
        resampled = resamples_of(part.scene, bounds)
        if (part.model, part.benchmark) not in seen:
            seen.add((part.model, part.benchmark))
            alone = nothing_rejected(part.scene)
            rows += evaluate({**names, **kind, "monitor": ALONE}, part.scene, alone, bounds, resampled=resampled)
        where = {**names, "monitor": part.monitor}
        rows += evaluate({**names, **kind, "monitor": part.monitor}, part.scene, part.decided, bounds, None, resampled)
        for metric, estimate in event_estimates(part.scene, part.decided, settings, confidence).items():
            numbers = {name: getattr(estimate, name) for name in ("value", "lo", "hi", "n", "reason")}
            events.append({**where, "metric": metric, **numbers})
        if not np.isnan(part.decided.scores).any():
            risk += risk_rows(where, part.scene, part.decided)
    ranks, pairs = rank_rows(rows)
    made = {
        table_specs.DECISIONS: rows,
        table_specs.OVERALL: overall_rows(rows),
        table_specs.IMPACT_ON_ID: [*_impact_rows(parts, bounds)],
        table_specs.SETS: [*_set_rows(parts)],
        table_specs.RISK: risk,
        table_specs.RANKS: ranks,
        table_specs.PAIRS: pairs,
        table_specs.EVENTS: events,
    }
    return {spec.name: spec.frame(own) for spec, own in made.items()}


def _read(table: pd.DataFrame | str | Path) -> pd.DataFrame:
    if isinstance(table, pd.DataFrame):
        return table.reset_index(drop=True)
    path = Path(table)
    require_file(path, "table of decisions")
    try:
        if path.suffix == ".parquet":
            return parquet_frame(path)
        return pd.read_csv(path, dtype=dict.fromkeys(NAMES, str), keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"table of decisions {path} cannot be read as CSV or Parquet: {reason}") from None


def _checked(frame: pd.DataFrame, threshold: float | None) -> pd.DataFrame:
    """The table with all columns that are used, each checked: `score`, `reject`, `group` and names."""
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"the table of decisions has two columns named {str(twice)!r}: keep one of them")
    for name in [name for name in frame.columns if pd.api.types.is_object_dtype(frame[name].dtype)]:
        if not frame[name].map(lambda cell: cell is None or pd.api.types.is_scalar(cell)).all():
            raise InputError(
                f"the column {str(name)!r} of the table of decisions holds lists or records: give one value"
            )
    for name in frame.columns:
        if name not in (*REQUIRED, *OPTIONAL, *FOUND_ANEW):
            raise InputError(f"table of decisions: {UnknownName('column', str(name), [*REQUIRED, *OPTIONAL])}")
    for name in REQUIRED:
        if name not in frame:
            raise InputError(f"the table of decisions lacks the column {name}: give one row per image with it")
    if not len(frame):
        raise InputError("the table of decisions holds no row: give one per image")
    has_score, has_decision = "score" in frame, "reject" in frame
    if not has_decision and (not has_score or threshold is None):
        raise InputError(
            "the table of decisions lacks the column reject: give 0 or 1 per image, or scores and `threshold=`"
        )
    if threshold is not None and math.isnan(threshold):
        raise InputError("the threshold of scores must be a number, not NaN: nothing lies below NaN")
    if has_decision and threshold is not None:
        raise InputError("the table of decisions says what is rejected: leave out `threshold=`, or the column reject")
    flags = [name for name in ("ood", "reject", "label_kept") if name in frame]
    for name in flags:
        if not frame[name].isin([0, 1]).all():
            raise InputError(f"the column {name} of the table of decisions must be 0 or 1 in every row")
    for name in [name for name in ("score", "confidence") if name in frame]:
        if not pd.to_numeric(frame[name], errors="coerce").notna().all():
            raise InputError(f"the column {name} of the table of decisions must be a number in every row")
    made = frame.assign(**{name: _texts(frame[name]) for name in NAMES if name in frame})
    _check_names(made)
    unlabelled = made["label"].isna() & (made["ood"] == 0)
    if made["prediction"].isna().any() or unlabelled.any():
        raise InputError("every row of the table of decisions needs a prediction, and every ID image a label")
    made = made.assign(**{name: usual for name, usual in ONE.items() if name not in frame})
    if made["benchmark"].isna().all():
        made["benchmark"] = ONE["benchmark"]
    made["group"] = made["group"] if "group" in made else made["id"]
    codes = pd.factorize(pd.concat([made["label"].fillna(""), made["prediction"]]))[0].astype(np.int64)
    made["label_code"], made["prediction_code"] = codes[: len(made)], codes[len(made) :]
    made["score"] = made["score" if has_score else "confidence"] if has_score or "confidence" in made else math.nan
    made["reject"] = made["reject"].astype(bool) if has_decision else made["score"] < float(threshold or 0.0)
    return made


def _parts(frame: pd.DataFrame) -> Iterator[_Part]:
    """The rows of each benchmark, model and monitor; ID rows without a benchmark belong to each."""
    everywhere = frame["benchmark"].isna()
    if (everywhere & (frame["ood"] == 1)).any():
        raise InputError("every OOD image of the table of decisions needs a benchmark where the column is given")
    of_model, of_benchmark, of_monitor = (
        {name: frame[column] == name for name in dict.fromkeys(frame[column].dropna())}
        for column in ("model", "benchmark", "monitor")
    )
    for model in of_model:
        for benchmark in of_benchmark:
            for monitor in of_monitor:
                rows = frame[of_model[model] & of_monitor[monitor] & (everywhere | of_benchmark[benchmark])]
                if not len(rows):
                    continue
                repeated = rows["id"][rows.duplicated(["id", "ood"])]
                if len(repeated):
                    twice = f"image {repeated.iloc[0]} twice in benchmark {benchmark}"
                    raise InputError(f"the table of decisions has {twice}: leave out one of the rows")
                scene = _scene(benchmark, rows)
                scores = rows["score"].to_numpy(np.float64)
                yield _Part(model, benchmark, monitor, scene, Decided(scores, rows["reject"].to_numpy(bool)))


def _scene(benchmark: str, rows: pd.DataFrame) -> Scene:
    """The stream of some rows, in their order."""
    ood = rows["ood"].to_numpy() == 1
    kinds = [*dict.fromkeys(rows.loc[ood, "ood_kind"].dropna())] if "ood_kind" in rows else []
    if len(kinds) > 1:
        several = ", ".join(kinds)
        raise InputError(f"benchmark {benchmark} of the table of decisions has several kinds ({several}): name one")
    label, prediction = rows["label_code"].to_numpy(np.int64), rows["prediction_code"].to_numpy(np.int64)
    without_label = ood & (rows["label"].isna().to_numpy() | (kinds == [NOVEL_CLASS]))
    kept = rows["label_kept"].to_numpy(bool) if "label_kept" in rows else np.ones(len(rows), bool)
    truth = Truth(ood, (label != prediction) | without_label, without_label | (ood & ~kept))
    groups: NDArray[np.str_] = np.array(rows["group"].tolist(), np.str_)
    starts = np.append(True, (groups[1:] != groups[:-1]) | (ood[1:] != ood[:-1]))
    stream = Stream(ood, np.arange(len(rows)), starts)
    kind = kinds[0] if kinds else ""
    note = BenchmarkNote(kind=kind, made_from="a table of decisions", has_label=not without_label.any())
    ids: NDArray[np.str_] = np.array(rows["id"].tolist(), np.str_)
    return Scene(benchmark, note, stream, truth, np.arange(len(rows)), ids, groups, label, prediction)


def _check_names(frame: pd.DataFrame) -> None:
    """Refuse unknown kinds, empty names where every row needs one, and names that mean something else in the tables."""
    for kind in frame["ood_kind"].dropna().unique() if "ood_kind" in frame else ():
        if kind not in KINDS:
            raise InputError(f"table of decisions: {UnknownName('ood_kind', kind, KINDS)}")
    for column in [name for name in ("id", "group", "model", "monitor") if name in frame]:
        if frame[column].isna().any():
            raise InputError(f"the column {column} of the table of decisions must be filled in every row")
    for column, reserved in (("model", (ALL,)), ("benchmark", (ALL,)), ("monitor", (ALONE, ALL))):
        for name in reserved:
            if column in frame and (frame[column] == name).any():
                raise InputError(
                    f"a {column} of the table of decisions cannot be called {name!r}, which means something else in "
                    "the tables: rename it"
                )


def _texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """The names of a column as text, None where there is none."""
    name = _class_name if column.name in ("label", "prediction") else _name
    return column.astype(object).where(column.notna(), None).map(name).astype(object)


def _name(value: Any) -> str | None:
    """A name as text; a whole number has no decimals, whatever the type of its column.

    >>> _name(3), _name(3.0), _name("3.0"), _name("")
    ('3', '3', '3.0', None)
    """
    if value is None or value == "":
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _class_name(value: Any) -> str | None:
    """The name of a class; of labels with empty cells, which are written as 3.0, and of answers 3 it is the same.

    >>> _class_name(3), _class_name("3.0"), _class_name("00014"), _class_name("2.50")
    ('3', '3', '00014', '2.50')
    """
    name = _name(value)
    whole_number = None if name is None else WHOLE_NUMBER.fullmatch(name)
    return whole_number[1] if whole_number else name


def _impact_rows(parts: list[_Part], bounds: Bounds) -> Iterator[dict[str, Any]]:
    """What each monitor does to each model on the ID images of all benchmarks, every image once."""
    by_monitor: dict[tuple[str, str], list[_Part]] = {}
    for part in parts:
        by_monitor.setdefault((part.model, part.monitor), []).append(part)
    for (model, monitor), own in by_monitor.items():
        names = ("ids", "groups", "label", "prediction")
        inside = {
            name: np.concatenate([getattr(part.scene, name)[~part.scene.stream.ood] for part in own]) for name in names
        }
        rejected = np.concatenate([part.decided.rejected[~part.scene.stream.ood] for part in own])
        if not len(rejected):
            reason = "there is no ID image"
            where = {"model": model, "monitor": monitor}
            yield from (no_estimate(reason).row(where, metric.name) for metric in ID_METRICS)
            continue
        once = np.sort(np.unique(inside["ids"], return_index=True)[1])
        label, prediction, groups = (inside[name][once] for name in names[2:] + names[1:2])
        options: dict[str, Any] = {"resamples": bounds.resamples, "seed": bounds.seed}
        estimates = class_mcc_estimates(
            label,
            prediction,
            rejected[once],
            groups,
            int(max(label.max(), prediction.max())) + 1,
            confidence=bounds.confidence,
            **options,
        )
        share = proportion_interval(rejected[once].astype(np.float64), groups, bounds.confidence)
        for name, estimate in {**estimates, REJECTED.name: share}.items():
            yield estimate.row({"model": model, "monitor": monitor}, name)


def _set_rows(parts: list[_Part]) -> Iterator[dict[str, Any]]:
    """Every benchmark of the table."""
    first = {part.benchmark: part.scene for part in reversed(parts)}
    for name in dict.fromkeys(part.benchmark for part in parts):
        scene = first[name]
        ood = int(scene.stream.ood.sum())
        lost = int(scene.truth.label_lost.sum())
        yield {
            "benchmark": name,
            "ood_kind": scene.note.kind,
            "near": False,
            "made_from": scene.note.made_from,
            "has_label": scene.note.has_label,
            "keeps_label": not lost,
            "attacked": "",
            "images_id": len(scene) - ood,
            "images_ood": ood,
            "objects": len(np.unique(scene.groups)),
            "ratio": ood / len(scene),
            "order": "as given",
            "leaked": 0,
            "note": f"{lost} images have no label or lost it" if lost else "",
        }


def decision_lines(tables: dict[str, pd.DataFrame]) -> Iterator[str]:
    """What each monitor is worth in each benchmark, a line each: MCC, false alarms, misses, and what is left wrong."""
    table = tables[table_specs.DECISIONS.name]
    stream = table[(table["part"] == STREAM) & (table["monitor"] != ALONE)]
    for (model, benchmark, monitor), rows in stream.groupby(["model", "benchmark", "monitor"], sort=False):
        values = {(row["view"], row["metric"]): row for _, row in rows.iterrows()}
        figures = [
            f"{view} {metric} {_number(values[view, metric]['value'])}"
            for view, metric in (
                *((DETECTION, "mcc"), (DETECTION, "fpr"), (DETECTION, "fnr"), (SYSTEM, "mcc")),
                *((MODEL_SCOPE, "residual_hazard"), (MODEL_SCOPE, "availability_cost")),
            )
        ]
        yield f"{model}, {benchmark}, {monitor}: {', '.join(figures)}"


def _number(value: float) -> str:
    return "not defined" if math.isnan(value) else f"{value:.3f}"
