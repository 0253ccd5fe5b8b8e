"""One report for every protocol: the pages of a run side by side, once for every source, and a plain one for others."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import roadworthy as rw
from doctored import merged, with_sources
from roadworthy.engine.folder import RunFolder
from test_report import HOSTILE, Elements, chart_data, headline, make_run, render

GOLDEN = Path(__file__).parent / "golden"
RUNS = [GOLDEN / "run", *(GOLDEN / "schema1" / name for name in ("ood", "dependability", "od_test"))]
SOURCES = ("gtsrb", "cure & <co>")


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.report._plotly", lambda: "var Plotly = {};")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of all protocols."""
    return merged(RUNS, tmp_path_factory.mktemp("merged") / "run")


def check_ids(html: str) -> None:
    """Every id stands once, every link and every chart has its element, every choice its views."""
    page, charts = Elements(html), chart_data(html)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
    assert {link for link in links if not str(link).startswith("tables/")} <= {f"#{name}" for name in ids}
    assert sorted(attrs["id"] for _, attrs in page.tags if attrs.get("class") == "chart") == sorted(charts)
    for part in html.split('data-charts="')[1:]:
        choices = part[: part.index("</select>")].count("<option")
        assert all(len(charts[name]) == choices for name in part[: part.index('"')].split())
    choosers = {attrs["id"] for tag, attrs in page.tags if tag == "select"}
    assert {attrs["data-panel"] for _, attrs in page.tags if "data-panel" in attrs} <= choosers


def test_all_protocols_of_a_run_share_one_report(everything: Path) -> None:
    html = rw.open_run(everything).report().read_text()
    check_ids(html)
    text = Elements(html).text
    titles = ("By shift and level", "Is the model less sure", "1. Scenario coverage", "Ranking of the monitors")
    places = [text.index(title) for title in titles]
    top = text[: min(places)]
    assert html.count('class="badge ') == html.count('class="badge fail"') == 1
    for words in ("Worst conditions", "Hardest outliers", "The worst of the shifts and attacks", "The highest mean"):
        assert words in top
    assert max(places) < text.index("How to read this") < text.index("Images of OD-test")
    lines = "\n".join(headline(everything))
    assert all(words in lines for words in ("Verdict: ", "Accuracy: ", "Hardest outliers: ", "Coverage ", "Monitors: "))


def test_a_model_that_a_protocol_did_not_ask_is_on_none_of_its_pages(everything: Path) -> None:
    html = render(everything)
    assert "All numbers of tiny" in html
    assert "All numbers of net" not in html, "classification asked tiny alone"
    assert re.search(r'<th scope="row"><span class="clamp" title="net">.*?not part of Classification', html, re.DOTALL)


def test_every_source_has_its_own_pages_and_figures(everything: Path, tmp_path: Path) -> None:
    run = with_sources(everything, tmp_path / "run", SOURCES)
    path = run / "tables" / "classification.parquet"
    table = pd.read_parquet(path)
    clean = (table["source"] == SOURCES[1]) & (table["shift"] == "none") & (table["metric"] == "accuracy")
    table.loc[clean, "value"] = 0.4321
    table.to_parquet(path, index=False)
    html = render(run)
    check_ids(html)
    text = Elements(html).text
    for source in SOURCES:
        assert f"By shift and level · {source}" in text
        assert f"data of {source}: 300 images of 60 objects" in text
    assert text.count("Ranking of the monitors") == 1, "OD-test shows all sources together"
    assert "45.7" in text
    charts = chart_data(html)
    values = [charts[f"classification-{place}-heat-0"][0]["data"][0]["z"][0][0] for place in (0, 1)]
    assert values == [pytest.approx(0.456667, abs=1e-5), 0.4321]
    lines = headline(run)
    assert lines[1].startswith("gtsrb: Accuracy: tiny 45.7")
    assert lines[3].replace("\xa0", " ").startswith("cure & <co>: Accuracy: tiny 43.2 %")


def test_a_table_without_sources_in_a_run_of_several_is_refused(everything: Path, tmp_path: Path) -> None:
    run = with_sources(everything, tmp_path / "run", SOURCES)
    shutil.copy(everything / "tables" / "ood.parquet", run / "tables" / "ood.parquet")
    with pytest.raises(rw.InputError, match=r"ood\.parquet cannot be read"):
        render(run)


def test_a_long_table_of_an_unknown_protocol_is_cut_and_shown_as_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {("m", "none", 0): 0.9})
    rows = pd.DataFrame({"model": "m", "words": HOSTILE, "value": [None, *(0.5 + n for n in range(200))]})
    RunFolder(run).write_table("their own", rows)
    record = json.loads((run / "run.json").read_text())
    record["cases"] = [{**case, "protocol": "their own"} for case in record["cases"]]
    RunFolder(run).write_record(record)
    html = render(run)
    check_ids(html)
    section = html.partition('<section id="their-own-table"')[2].partition("</section>")[0]
    assert section.count("<tr>") == 201
    assert "<td>n/a</td></tr>" in section
    assert "The first 200 of 201 rows; all of them: <code>tables/their own.csv</code>" in section
    assert HOSTILE not in html
    assert HOSTILE in Elements(html).text


def test_the_frame_of_the_report_names_no_protocol() -> None:
    folder = Path(rw.__file__).parent / "report"
    for path in folder.iterdir():
        if path.suffix in (".py", ".j2", ".css", ".js"):
            assert not re.search(r"od_?test", path.read_text(), re.IGNORECASE), path.name
    for name in ("__init__.py", "facts.py", "frame.py", "page.py", "frame.html.j2", "plain.html.j2"):
        assert not re.search(r"\bood\b(?!-)|classification|dependability", (folder / name).read_text()), name
