"""One report for every protocol: the pages of a run side by side, once for every source, and a plain one for others."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import roadworthy as rw
from records import changed, network_record, record_anew
from reports import HOSTILE, Elements, chart_data, headline, make_run, render
from roadworthy.core.record import RunRecord
from roadworthy.engine.folder import RunFolder
from roadworthy.report.words import NO_BREAK, number
from tiny import save_onnx

SOURCES = ("gtsrb", "cure")
DEPENDABILITY = {
    "transformers": [{"name": "rotation", "level": 3}, {"name": "blur", "level": 3}],
    "loss_images": 14,
    "slices": {"depth": 1, "support": 5},
    "occlusion": {"patch": 16, "stride": 16, "images": 4},
}


BREAK_POINT = {"shifts": [{"name": "fog", "levels": {1: {"factor": 0.3}, 2: {"factor": 0.9}}}], "at_least": 0.3}


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.report._plotly", lambda: "var Plotly = {};")


def run_of(folder: Path, sources: dict[str, Any], ood: dict[str, Any], **protocols: Any) -> Path:
    """A run of classification, outliers, OD-test and further protocols, with one criterion that fails."""
    study = {
        **sources,
        "name": "pages",
        "size": 32,
        "outliers": {"scenery": {"builtin": "scenery", "n": 20}},
        "monitors": ["msp", "energy"],
        "protocols": {
            "classification": {"shifts": ["fog"], "levels": [1, 3]},
            "ood": {"sets": ["scenery", "swirl"], "transformed": ["fog"], **ood},
            "od_test": {"limit": 20},
            **protocols,
        },
        "criteria": [{"id": "G", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.999}],
    }
    return rw.run_study(study, out=folder / "run", progress=rw.no_progress).path


def source_of(folder: Path, n: int = 98, **models: Any) -> dict[str, Any]:
    path = folder / "tiny.onnx"
    data = {"test": {"builtin": "signs", "n": n}, "train": {"builtin": "signs", "split": "train", "n": 70}}
    return {"data": data, "models": {"tiny": {"onnx": str(save_onnx(path))}, **models}}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of all protocols."""
    folder = tmp_path_factory.mktemp("everything")
    worse = {"net": {"onnx": str(save_onnx(folder / "net.onnx", blur=0.3))}}
    return run_of(folder, source_of(folder, **worse), {}, dependability=DEPENDABILITY, break_point=BREAK_POINT)


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two sources, one of which alone is shown outliers."""
    folder = tmp_path_factory.mktemp("sources")
    sources = {name: source_of(folder, n) for name, n in zip(SOURCES, (98, 112), strict=True)}
    return run_of(folder, {"sources": sources}, {"sources": [SOURCES[1]]})


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
    titles = (
        "By shift and level",
        "Is the model less sure",
        "1. Scenario coverage",
        "Ranking of the monitors",
        "From which severity on?",
    )
    places = [text.index(title) for title in titles]
    top = text[: min(places)]
    assert html.count('class="badge ') == html.count('class="badge fail"') == 1
    for words in ("Worst conditions", "Hardest outliers", "The worst of the shifts and attacks", "The highest mean"):
        assert words in top
    cell = html[html.index('<td data-label="In words">') :]
    shown, _, folded = cell[: cell.index("</td>")].partition("<details><summary>More on tiny</summary>")
    titles_in_bold = re.findall(r"<li><b>([^<]+)\.</b>", shown)
    assert titles_in_bold[:2] == ["Classification", "Outliers"], "a line for each protocol"
    assert len(titles_in_bold) == len(set(titles_in_bold)) == shown.count("<li>")
    assert "in-distribution is the positive class" in folded, "what the words rest on is folded, not lost"
    assert "OD-test, outliers scenery, uniform_noise and normal_noise" in top
    assert max(places) < text.index("How to read this") < text.index("Images of OD-test")
    lines = "\n".join(headline(everything))
    assert all(
        words in lines
        for words in ("Verdict: ", "Accuracy: ", "Hardest outliers: ", "Coverage ", "Monitors: ", "Break points ")
    )


def test_a_model_that_a_protocol_did_not_ask_is_on_none_of_its_pages(everything: Path, tmp_path: Path) -> None:
    def leave_out(record: RunRecord) -> RunRecord:
        for protocol in ("classification", "ood"):
            record.protocols[protocol].sources[""].left_out["net"] = "model net answers no probabilities"
        return record

    run = changed(Path(shutil.copytree(everything, tmp_path / "run")), leave_out)
    for path in (run / "tables").glob("classification*.parquet"):
        table = pd.read_parquet(path)
        if "model" in table:
            table[table["model"] != "net"].to_parquet(path, index=False)
    html = render(record_anew(run))
    assert "All numbers of tiny" in html
    assert "All numbers of net" not in html, "classification asked tiny alone"
    assert "Left out of classification and ood: model net answers no probabilities." in html
    assert re.search(r'<th scope="row"><span class="clamp" title="net">.*?not part of Classification', html, re.DOTALL)


def renamed(run: Path, name: str, new: str) -> None:
    """Give a source another name in the record and all tables."""
    for path in (run / "tables").glob("*.parquet"):
        pd.read_parquet(path).replace(name, new).to_parquet(path, index=False)
    path = run / "run.json"
    path.write_text(path.read_text().replace(json.dumps(name), json.dumps(new)))
    record_anew(run)


def test_every_source_has_its_own_pages_and_figures(two_sources: Path, tmp_path: Path) -> None:
    run, hostile = Path(shutil.copytree(two_sources, tmp_path / "run")), "cure & <co>"
    renamed(run, "cure", hostile)
    html = render(run)
    check_ids(html)
    text = Elements(html).text
    for source, images in (("gtsrb", 98), (hostile, 112)):
        assert f"By shift and level · {source}" in text
        assert f"{source} signs: {images} images of" in text
    assert f"Outliers · {hostile} tiny. The hardest outliers: " in text
    assert text.count("Is the model less sure") == 1, "outliers were shown to one source alone"
    assert text.count("Ranking of the monitors") == 1, "OD-test shows all sources together"
    table = rw.open_run(run).tables["classification"].query("shift == 'none' and metric == 'accuracy'")
    charts = chart_data(html)
    values = [charts[f"classification-{place}-heat-0"][0]["data"][0]["z"][0][0] for place in (0, 1)]
    assert values == pytest.approx(table["value"].tolist(), abs=1e-5)
    assert values[0] != values[1]
    shares = [number("accuracy", value).replace(NO_BREAK, " ") for value in values]
    lines = [line.replace(NO_BREAK, " ") for line in headline(run)]
    assert lines[1].startswith(f"gtsrb: Accuracy: tiny {shares[0]} (")
    assert lines[3].startswith(f"{hostile}: Accuracy: tiny {shares[1]} (")


def test_every_source_has_its_own_pictures(two_sources: Path) -> None:
    gallery = rw.open_run(two_sources).tables["classification_gallery"]
    assert set(gallery["source"]) == set(SOURCES)
    assert gallery["media"].is_unique, "no source writes over what another one was shown"
    foggy = [(two_sources / "media" / name).read_bytes() for name in gallery.query("level > 0")["media"]]
    assert len(set(foggy)) == len(foggy) == 4


def test_an_undertrained_network_marks_the_model_of_its_own_source_alone(two_sources: Path, tmp_path: Path) -> None:
    def train(record: RunRecord) -> RunRecord:
        record.sources["cure"].models["tiny"].artifacts.append("weak")
        record.artifacts["weak"] = network_record("tiny", clean_accuracy=0.5, floor=0.9)
        return record

    run = changed(Path(shutil.copytree(two_sources, tmp_path / "run")), train)
    lines = headline(run)
    assert lines[1].startswith("gtsrb: Accuracy: tiny ")
    assert "undertrained" not in lines[1]
    assert lines[3].startswith("cure: Accuracy: tiny (undertrained) ")
    text = Elements(render(run)).text
    assert "tiny cure undertrained" in text
    assert "tiny gtsrb undertrained" not in text
    assert "source cure, model tiny (undertrained)" in text
    assert "source gtsrb, model tiny (undertrained)" not in text
    assert "tiny: 50.0 % on undisturbed images, below its floor of 90.0 %." in text


def test_a_table_without_sources_in_a_run_of_several_is_refused(two_sources: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(two_sources, tmp_path / "run"))
    path = run / "tables" / "ood.parquet"
    pd.read_parquet(path).drop(columns="source").to_parquet(path, index=False)
    record_anew(run)
    with pytest.raises(rw.InputError, match=r"ood\.parquet cannot be read"):
        render(run)


def test_a_long_table_of_an_unknown_protocol_is_cut_and_shown_as_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {("m", "none", 0): 0.9})
    rows = pd.DataFrame({"model": "m", "words": HOSTILE, "value": [None, *(0.5 + n for n in range(200))]})
    RunFolder(run).write_table("their own", rows)
    changed(run, lambda r: r.model_copy(update={"protocols": {"their own": r.protocols["classification"]}}))
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
