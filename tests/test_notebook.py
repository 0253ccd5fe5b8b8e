"""Objects in a notebook: what they show, that names stay names, and charts as figures of plotly."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import roadworthy as rw
from roadworthy.api import no_progress
from roadworthy.core import showing
from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.statistics import Estimate
from roadworthy.verdict import Criterion, Failed, Measurement, judge
from tiny import save_onnx, study

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("notebook")
    content = study(
        folder,
        70,
        name="<b>study",
        models={EVIL: {"onnx": str(save_onnx(folder / "tiny.onnx"))}},
        protocols={"classification": {"shifts": ["noise"], "levels": [1]}},
        criteria=[{"id": EVIL, "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.3}],
    )
    return rw.run_study(content, out=folder / "run", progress=no_progress)


def harmless(page: str) -> str:
    """The page, which has no script and no element that a name brought in."""
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "<b>study" not in page
    opened, closed = re.findall(r"<(\w+)", page), re.findall(r"</(\w+)", page)
    assert sorted(name for name in opened if name != "img") == sorted(closed), "every element is closed"
    return page


def test_a_run_its_tables_and_its_verdict(run: rw.Run) -> None:
    page = harmless(run._repr_html_())
    assert "&lt;script&gt;" in page
    assert "Run &lt;b&gt;study" in page
    assert ">pass</span>" in page
    assert "70 images" in page
    tables = harmless(run.tables._repr_html_())  # type: ignore[attr-defined]
    assert "classification_overall" in tables
    assert f">{len(run.tables['classification'])}</td>" in tables
    verdict = harmless(run.verdict()._repr_html_())
    assert "the lower bound reaches 0.3" in verdict


def test_a_verdict_without_criteria_and_one_with_failures() -> None:
    criterion = Criterion(id="R", metric="accuracy", at_least=0.9)

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        return [Measurement({}, Estimate(0.5, 0.4, 0.6, n=50, groups=50))]

    failed = judge([criterion], measure, failed=[Failed(EVIL, "<i>memory")])
    page = harmless(failed._repr_html_())
    assert ">fail</span>" in page
    assert "&lt;i&gt;memory" in page
    assert "none" in harmless(judge([], measure)._repr_html_())


def test_an_estimate() -> None:
    assert "0.5 [0.4, 0.6]" in Estimate(0.5, 0.4, 0.6, n=1200, groups=50, method="wilson")._repr_html_()
    assert (
        "1,200 images of 50 objects, wilson"
        in Estimate(0.5, 0.4, 0.6, n=1200, groups=50, method="wilson")._repr_html_()
    )
    assert "no bounds" in Estimate(0.5, reason="few")._repr_html_()
    assert "no value" in harmless(Estimate(np.nan, reason=EVIL)._repr_html_())


def test_a_check(tmp_path: Path) -> None:
    save_onnx(tmp_path / "tiny.onnx")
    report = rw.check(tmp_path / "tiny.onnx", {"builtin": "signs", "n": 60}, size=32, name=EVIL, sample=30)
    page = harmless(report._repr_html_())
    assert "nothing wrong was found" in page
    assert "accuracy" in page
    save_onnx(tmp_path / "white.onnx", white=255.0)
    wrong = rw.check(tmp_path / "white.onnx", {"builtin": "signs", "n": 140}, size=32, range="0-1")
    assert wrong.findings
    assert ">fail</span>" in wrong._repr_html_()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch(channels: int) -> None:
    images = np.zeros((10, 6, 8, channels), np.uint8)
    batch = Batch(
        tuple(f"{EVIL}{row}" for row in range(10)), images, np.arange(10), boxes=np.zeros((10, 4), np.float32)
    )
    page = harmless(batch._repr_html_())
    assert page.count("data:image/png;base64,") == showing.MOST_PICTURES
    assert "and 2 more" in page
    assert f"6x8x{channels}; boxes" in page
    assert "Batch of 0 images" in batch.take([])._repr_html_()


def test_a_comparison_shows_names_as_text(run: rw.Run) -> None:
    table = rw.compare([run, run])
    assert isinstance(table, pd.DataFrame)
    harmless(table._repr_html_().replace("border=", "data-border="))  # type: ignore[operator]


def test_long_tables_and_texts_are_cut() -> None:
    page = showing.table(["a"], [[row] for row in range(100)])
    assert page.count("<tr>") == 1 + showing.MOST_ROWS + 1
    assert "and 60 more" in page
    assert len(showing.escaped("x" * 10**6)) == showing.MOST_TEXT


def test_charts_are_figures_of_plotly(run: rw.Run) -> None:
    figures = run.figures()
    assert len(figures) > 20
    assert all(isinstance(figure, go.Figure) for figure in figures.values())
    heat = run.figure("classification-heat-0")
    assert heat == figures["classification-heat-0: Accuracy"]
    table = run.tables["classification"].query("metric == 'accuracy'")
    shown = [value for row in heat.data[0].z for value in row if value is not None]
    assert {round(value, 4) for value in table["value"]} >= {round(value, 4) for value in shown}
    assert heat.layout.paper_bgcolor == "#ffffff"
    for figure in figures.values():
        assert "<script" not in figure.to_json().replace("\\u003c", "<")
    with pytest.raises(InputError, match="unknown figure of the run 'heat'"):
        run.figure("heat")


def test_without_plotly_it_is_one_sentence(run: rw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(InputError, match="figures are objects of plotly, which is not installed: pip install plotly"):
        run.figures()


def test_nothing_is_imported_to_show_a_text() -> None:
    assert showing.card("a", "<b>", showing.Html("<i>c</i>")) == (
        "<div><p><strong>a</strong></p><p>&lt;b&gt;</p><i>c</i></div>"
    )
    value: Any = showing.status("none")
    assert value == "<span>none</span>"
