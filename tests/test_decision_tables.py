"""Tables of decisions made elsewhere: names of classes as they are written, one side only, names that are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.metrics import matthews_corrcoef

import roadworthy as rw
from roadworthy.core.errors import InputError


def stream_values(tables: dict[str, pd.DataFrame], view: str = "system") -> dict[str, float]:
    rows = tables["monitoring"].query("monitor != 'none' and part == 'stream' and view == @view")
    return dict(zip(rows["metric"], rows["value"], strict=True))


def table(images: int = 4, **columns: Any) -> pd.DataFrame:
    usual: dict[str, Any] = {
        "id": [f"image-{number}" for number in range(images)],
        "ood": [number % 2 for number in range(images)],
        "label": ["stop"] * images,
        "prediction": ["stop"] * images,
        "score": [number / images for number in range(images)],
        "reject": [number // 2 % 2 for number in range(images)],
    }
    return pd.DataFrame({**usual, **columns})


def test_class_names_of_a_csv_file_are_text(tmp_path: Path) -> None:
    labels, predictions = ["00014", "14", "NA", "None"], ["14", "14", "NA", "None"]
    decisions = table(label=labels, prediction=predictions, monitor="01")
    decisions.to_csv(tmp_path / "decisions.csv", index=False)
    tables = rw.evaluate_decisions(tmp_path / "decisions.csv")
    assert stream_values(tables, "model_scope")["residual_hazard"] == 0.25, "00014 is not 14, NA and None are classes"
    assert set(tables["monitoring"]["monitor"]) == {"none", "01"}


def test_a_class_is_the_same_whatever_the_type_of_its_column(tmp_path: Path) -> None:
    decisions = table(label=[3, None, 4, 4], prediction=[3, 3, 4, 5])
    assert decisions["label"].dtype == float
    decisions.to_csv(tmp_path / "decisions.csv", index=False)
    for given in (decisions, tmp_path / "decisions.csv", decisions.astype({"label": object})):
        assert stream_values(rw.evaluate_decisions(given), "model_scope")["residual_hazard"] == 0.25
        wrong = stream_values(rw.evaluate_decisions(given), "model_scope")
        assert wrong["safety_gain"] + wrong["residual_hazard"] == 0.5, "one novel class, one wrong answer"


def test_classes_have_one_number_in_all_benchmarks() -> None:
    first = table(label="a", prediction="a", benchmark="x", reject=0)
    second = table(
        id=list("pqrs"), label=["b", "b", "a", "c"], prediction=["b", "b", "c", "c"], benchmark="y", reject=0
    )
    tables = rw.evaluate_decisions(pd.concat([first, second], ignore_index=True))
    alone = tables["monitoring_id"].set_index("metric")["value"]["class_mcc_alone"]
    assert alone == pytest.approx(matthews_corrcoef(["a", "a", "b", "a"], ["a", "a", "b", "c"]))


@pytest.mark.parametrize(("ood", "lost"), [(0, "OOD"), (1, "ID")])
def test_one_side_only_gives_reasons(ood: int, lost: str) -> None:
    tables = rw.evaluate_decisions(table(60, ood=ood, benchmark=None if ood == 0 else "fog"), resamples=100)
    rows = tables["monitoring"].query("monitor == 'monitor' and view == 'detection' and part == 'stream'")
    by_metric = rows.set_index("metric")
    assert by_metric.loc["auroc", "reason"] == f"there is no {lost} image"
    assert by_metric["value"].isna()["auroc"]
    assert (rows.loc[rows["value"].isna(), "reason"] != "").all()
    assert set(tables["monitoring"]["benchmark"]) == {"stream" if ood == 0 else "fog"}
    assert stream_values(tables, "model_scope")["availability_cost"] == 0.5
    on_id = tables["monitoring_id"]
    assert on_id["value"].isna().all() == (lost == "ID")
    assert (on_id.loc[on_id["value"].isna(), "reason"] != "").all()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"monitor": "none"}, "monitor .* cannot be called 'none'"),
        ({"monitor": ["a", "all", "a", "a"]}, "monitor .* cannot be called 'all'"),
        ({"model": "all"}, "model .* cannot be called 'all'"),
        ({"benchmark": "all"}, "benchmark .* cannot be called 'all'"),
        ({"monitor": ["a", None, "a", "a"]}, "column monitor .* must be filled in every row"),
        ({"group": ["a", "", "a", "a"]}, "column group .* must be filled in every row"),
    ],
)
def test_names_that_are_taken_or_empty_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rw.evaluate_decisions(table(**columns))
