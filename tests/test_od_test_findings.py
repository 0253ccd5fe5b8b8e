"""Beyond the matrix, in a real run: tables that verify, a page that shows them, a paragraph on what to choose."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roadworthy as rw
import tiny
from commands import call
from records import record_anew
from reports import chart_data, headline, render, section_of, without_charts
from roadworthy.engine.artifacts import read_artifact
from roadworthy.protocols.od_test.choosing import Choice, at_source, choose
from roadworthy.protocols.od_test.facts import OdTestFacts
from roadworthy.protocols.od_test.finding_figures import LINES, gap_labels, size_views, unbeaten
from roadworthy.protocols.od_test.loading import load_od_test
from roadworthy.protocols.od_test.ranking import CostRow
from roadworthy.report.facts import load_facts
from roadworthy.statistics import Estimate

ROOT = Path(__file__).parent.parent
SIGNS = {"builtin": "signs", "n": 140}
TRAIN = {"builtin": "signs", "split": "train", "n": 70}
OUTLIERS = {"scenery": {"builtin": "scenery", "n": 40}, "uniform": "uniform_noise", "normal": "normal_noise"}
FURTHER = ("od_test_gap", "od_test_gap_methods", "od_test_stability", "od_test_ranks", "od_test_valid_size")


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.report._plotly", lambda: "var Plotly = {};")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    """Two sources, the first with two models; two of four monitors ask no model."""
    folder = tmp_path_factory.mktemp("findings")
    plain = {"onnx": str(tiny.save_onnx(folder / "plain.onnx"))}
    blurred = {"onnx": str(tiny.save_onnx(folder / "blurred.onnx", blur=0.3))}
    source = {"data": {"test": SIGNS, "train": TRAIN}, "size": 32}
    study = {
        "name": "tiny",
        "sources": {
            "first": source | {"models": {"plain": plain, "blurred": blurred}, "near": ["scenery"]},
            "second": source | {"data": {"test": SIGNS | {"seed": 3}, "train": TRAIN}, "models": {"plain": plain}},
        },
        "outliers": OUTLIERS,
        "monitors": ["msp", "energy", "knn_svm", "random"],
        "protocols": {"od_test": {"limit": 30}},
    }
    return rw.run_study(study, out=folder / "run", workers=1, progress=rw.no_progress)


@pytest.fixture
def copied(stored: rw.Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored.path, tmp_path / "run"))


def opened(run: Path) -> OdTestFacts:
    return load_od_test(run, load_facts(run))


def test_every_further_table_is_written_and_follows_from_what_is_stored(stored: rw.Run) -> None:
    assert {*FURTHER} <= {*stored.tables}
    assert stored.verify() == []
    gaps = stored.tables["od_test_gap"]
    assert len(gaps) == 3 * 3 * 4
    assert (gaps["n"] > 0).all()
    np.testing.assert_allclose(gaps["gap"], gaps["two_datasets"] - gaps["three_datasets"])
    matrix = stored.tables["od_test"].query("metric == 'accuracy'")
    keys = ["source", "model", "valid_set", "monitor"]
    means = matrix.groupby(keys)["value"].mean()
    assert gaps.set_index(keys)["three_datasets"].sort_index().tolist() == pytest.approx(means.sort_index().tolist())
    ranked = stored.tables["od_test_methods"].query("source == 'all' and ood == 'all' and metric == 'accuracy'")
    of_size = stored.tables["od_test_valid_size"].query("source == 'all'").groupby("monitor").last()["value"]
    assert of_size.to_dict() == pytest.approx(ranked.set_index("monitor")["value"].to_dict())
    best = ranked.sort_values("value", ascending=False)["monitor"].tolist()
    assert stored.tables["od_test_ranks"]["monitor"].tolist() == best
    for name in FURTHER:
        assert (stored.path / "tables" / f"{name}.csv").is_file()


def test_monitors_that_ask_no_model_count_once_and_stand_apart(stored: rw.Run) -> None:
    matrix = stored.tables["od_test"].query("metric == 'accuracy' and source == 'first'")
    both = matrix.pivot(index=["monitor", "valid_set", "test_set"], columns="model", values="value")
    for label in ("knn_svm", "random"):
        assert (both.loc[label, "plain"] == both.loc[label, "blurred"]).all()
    assert not (both.loc["msp", "plain"] == both.loc["msp", "blurred"]).all()
    overall = stored.tables["od_test_methods"].query("source == 'all' and ood == 'all' and metric == 'accuracy'")
    assert overall.set_index("monitor")["triples"].to_dict() == {"msp": 18, "energy": 18, "knn_svm": 12, "random": 12}
    assert set(overall["clusters"]) == {6}
    kinds = stored.tables["od_test_architectures"]
    assert set(kinds[kinds["monitor"] == "knn_svm"]["architecture"]) == {"all", "any"}
    test = opened(stored.path)
    assert test.architecture_names == ("plain", "blurred", "any")
    assert set(test.labels_of("any")) == {"knn_svm", "random"}
    assert set(test.labels_of("plain")) == {"msp", "energy"}
    assert "asks no model" in section_of(render(stored.path), "od_test-ranking")
    cells = stored.tables["od_test_heatmap"].set_index(["monitor", "valid_set", "test_set"])
    for label in test.labels:
        cell = test.triple("all", label, "uniform", "normal")
        assert cell.value == pytest.approx(cells.loc[(label, "uniform", "normal"), "accuracy"])
        assert cell.n == cells.loc[(label, "uniform", "normal"), "sources"]


def test_the_page_shows_what_the_tables_say(stored: rw.Run) -> None:
    page = render(stored.path)
    charts = {name.removeprefix("od_test-"): chart for name, chart in chart_data(page).items()}
    order = [*stored.tables["od_test_ranks"]["monitor"]]
    heat = charts["stability-chart"][0]
    assert heat["layout"]["xaxis"]["ticktext"] == heat["layout"]["yaxis"]["ticktext"] == order
    before = stored.tables["od_test_stability"].set_index(["monitor", "other"])["before"]
    assert heat["data"][0]["z"][0][1] == before[order[0], order[1]]
    assert heat["data"][0]["z"][1][1] is None
    ranks = charts["rank-chart"][0]
    assert ranks["data"][0]["x"] == [1, 2, 3, 4]
    means = stored.tables["od_test_gap_methods"].set_index(["monitor", "figure"])["value"]
    gap = charts["gap-chart"][0]
    names = gap["layout"]["yaxis"]["ticktext"]
    assert [means[name, "three_datasets"] for name in names] == sorted(
        (means[name, "three_datasets"] for name in order), reverse=True
    )
    three, two = gap["data"][-2:]
    assert two["x"] == pytest.approx([means[name, "two_datasets"] for name in names], abs=1e-5)
    assert three["x"] == pytest.approx([means[name, "three_datasets"] for name in names], abs=1e-5)
    assert [line["x"] for line in gap["data"][:-2]] == [[*pair] for pair in zip(three["x"], two["x"], strict=True)]
    (lines,) = charts["size-chart"]
    assert [line["name"] for line in lines["data"]] == order
    sizes = stored.tables["od_test_valid_size"].query("source == 'all'").set_index(["monitor", "images"])["value"]
    assert lines["data"][0]["y"] == pytest.approx(sizes[order[0]].tolist(), abs=1e-5)
    cost = charts["cost-accuracy-chart"][0]
    assert sum(len(trace["x"]) for trace in cost["data"]) == 4
    links = re.findall(r'<section id="od_test-([a-z]+)"', page)
    wanted = ["ranking", "stability", "gap", "papers", "sources", "pairs", "near", "alone", "size", "cost", "networks"]
    assert [link for link in links if link in wanted] == wanted
    words = without_charts(page)
    assert "were chosen, not drawn" in section_of(page, "od_test-stability")
    assert "calibrated with the first 80 % of a set" in section_of(page, "od_test-gap").replace("&nbsp;", " ")
    assert re.search(r"Tested with the kind of outliers that it was calibrated with, \w+ reaches", words)


def without_further(run: Path) -> Path:
    """The run as an earlier version left it."""
    for name in FURTHER:
        for path in (run / "tables").glob(f"{name}.*"):
            path.unlink()
    record = json.loads((run / "run.json").read_text())
    for part in record["protocols"]["od_test"]["sources"].values():
        for note in part["context"]["monitors"].values():
            del note["asks_model"]
    (run / "run.json").write_text(json.dumps(record))
    return record_anew(run)


def test_a_run_of_an_earlier_version_has_no_such_section_and_says_less(copied: Path) -> None:
    before = chart_data(render(copied))
    page = render(without_further(copied))
    further = {f"od_test-{name}-chart" for name in ("gap", "stability", "rank", "size", "cost-accuracy")}
    assert {*before} - {*chart_data(page)} == further
    assert not section_of(page, "od_test-gap")
    assert not section_of(page, "od_test-stability")
    words = choose(copied)
    assert "leads, with a mean accuracy of" in words
    assert "no tables on two data sets, stability or the size of D_v" in words
    assert "would have promised" not in words
    assert "images of D_v" not in words


def with_weak_fits(run: Path, label: str, model: str) -> Path:
    """The run as if networks that a monitor has of its own were below their floor on a model."""
    record = json.loads((run / "run.json").read_text())
    for part in record["protocols"]["od_test"]["sources"].values():
        for asked in part["cases"]:
            if (asked["system"], asked["labels"]["role"], asked["labels"]["model"]) == (label, "monitor", model):
                built = record["artifacts"][asked["labels"]["artifact"]]
                built["competence"] |= {"clean_accuracy": 0.4, "floor": 0.9}
    (run / "run.json").write_text(json.dumps(record))
    return record_anew(run)


def test_a_monitor_whose_own_networks_are_undertrained_is_shown_without_a_rank(copied: Path) -> None:
    leader = opened(copied).ranked[0].label
    run = with_weak_fits(copied, leader, "blurred")
    test = opened(run)
    assert test.undertrained_monitors == {leader: ("first/blurred",)}
    method = next(method for method in test.methods if method.label == leader)
    assert (method.rank, method.why) == (None, "12 of 18 triples only, undertrained at first/blurred")
    page = render(run)
    mark = '<span class="mark">undertrained</span>'
    assert f'<th scope="row">{leader} {mark}</th>' in section_of(page, "od_test-ranking")
    ranking = chart_data(page)["od_test-ranking-chart"][0]
    assert ranking["layout"]["yaxis"]["ticktext"][-1] == f"{leader} (undertrained)"
    assert ranking["data"][0]["marker"]["color"][-1] == "#ffffff"
    line = f"{leader} has networks of its own below their floor at first/blurred: no rank"
    assert any(text.startswith(line) for text in headline(run))
    assert f"Not ranked, as they lack triples or are undertrained: {leader}." in choose(run)


def test_fits_at_a_source_that_does_not_count_take_no_rank_away(copied: Path) -> None:
    leader = opened(copied).ranked[0].label
    test = opened(with_weak_fits(copied, leader, "blurred"))
    sources = [replace(source, undertrained=source.name == "first/blurred") for source in test.sources]
    assert replace(test, sources=tuple(sources)).undertrained_monitors == {}


def test_a_difference_from_a_paper_is_said_once_for_all_it_holds_for(copied: Path) -> None:
    test = replace(opened(copied), differs={"random": "a", "msp": "b", "knn_svm": "a"})
    assert {text: sorted(labels) for text, labels in test.differences.items()} == {
        "a": ["knn_svm", "random"],
        "b": ["msp"],
    }


def test_rows_of_an_undertrained_fit_are_marked_in_the_tables(stored: rw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def weak(home: Path) -> Mapping[str, Any]:
        artifact = read_artifact(home)
        low = {"clean_accuracy": 0.5, "floor": 0.9} if artifact["builder"] == "monitor:energy" else {}
        return {**artifact, "competence": artifact["competence"] | low}

    monkeypatch.setattr("roadworthy.protocols.od_test.tables.read_artifact", weak)
    problems = stored.verify()
    assert "table od_test does not follow from the readouts" in problems
    assert "table od_test_ranks does not follow from the readouts" in problems, "it has no rank"
    assert "table od_test_competence does not follow from the readouts" not in problems, "the model is as it was"


def test_the_paragraph_says_what_the_tables_say(stored: rw.Run) -> None:
    words, tables = choose(stored.path), stored.tables
    ranks, before = tables["od_test_ranks"], tables["od_test_stability"].set_index(["monitor", "other"])["before"]
    leader = ranks["monitor"].iloc[0]
    mean = (
        tables["od_test_methods"]
        .query(f"source == 'all' and ood == 'all' and metric == 'accuracy' and monitor == '{leader}'")["value"]
        .iloc[0]
    )
    assert words.startswith(f"Of 4 ranked monitors {leader} leads, with a mean accuracy of {100 * mean:.1f} % (")
    still_open = [other for other in ranks["monitor"].iloc[1:] if 0.05 < before[leader, other] < 0.95]
    costs = tables["timing_od_test"].groupby("monitor")["seconds_per_image"].mean()
    if still_open:
        assert re.search(rf"{'.*'.join(map(re.escape, still_open))} cannot be told apart from it", words)
        cheapest = min([leader, *still_open], key=lambda label: costs[label])
        assert (f"The cheapest of these is {cheapest}" in words) == (cheapest != leader)
    else:
        assert "It is before every other in 95 % or more" in words
    two = tables["od_test_gap_methods"].set_index(["monitor", "figure"]).loc[(leader, "two_datasets"), "value"]
    assert f"would have promised {100 * two:.1f} % for {leader}" in words
    matrix = tables["od_test"].query(f"metric == 'accuracy' and monitor == '{leader}'")
    worst = matrix.groupby("test_set")["value"].mean().sort_values()
    assert f"{leader} is worst on {worst.index[0]} ({100 * worst.iloc[0]:.1f} %)" in words
    assert "2 sources with 3 models and 3 outlier sets: D_v and D_t were chosen, not drawn" in words
    assert "\n" not in words
    assert rw.choose_monitor(stored) == words
    assert call("monitor", "choose", stored.path).strip() == words


def test_one_source_speaks_for_itself(stored: rw.Run) -> None:
    words = choose(stored.path, "first/blurred")
    means = stored.tables["od_test_methods"].query(
        "source == 'first' and model == 'blurred' and ood == 'all' and metric == 'accuracy'"
    )
    best = means.sort_values("value", ascending=False).iloc[0]
    assert f"{best['monitor']} leads at first/blurred, with a mean accuracy of {100 * best['value']:.1f} %" in words
    gaps = stored.tables["od_test_gap"].query(f"model == 'blurred' and monitor == '{best['monitor']}'")
    promised = Choice(at_source(opened(stored.path), "first/blurred"), "first/blurred").promised(best["monitor"])
    assert promised.value == pytest.approx(gaps["two_datasets"].mean())
    assert "drawn anew" not in words
    assert "1 source and 3 outlier sets" in words
    assert choose(stored.path, "second") == choose(stored.path, "second/plain").replace("second/plain", "second")
    assert "name one of first/plain and first/blurred" in call(
        "monitor", "choose", stored.path, "--source", "first", code=2
    )
    assert "unknown source 'third'" in call("monitor", "choose", stored.path, "--source", "third", code=2)


def test_a_run_without_an_od_test_has_one_sentence(tmp_path: Path) -> None:
    run = shutil.copytree(ROOT / "tests" / "golden" / "run", tmp_path / "run")
    assert re.fullmatch(r".*run holds no OD-test, .*: run a study with od_test", call("monitor", "choose", run, code=2))
    assert "run.json" in call("monitor", "choose", tmp_path, code=2)


def test_a_field_without_ranks_supports_nothing_and_says_why(stored: rw.Run) -> None:
    test = opened(stored.path)
    lost = {key: Estimate(np.nan, reason="no luck") for key in test.triples}
    words = " ".join(Choice(replace(test, triples=lost)).sentences())
    assert words.startswith("The evidence supports no monitor: none has a value for each of 18 triples.")
    assert f"The first of 4, {test.labels[0]}: 0 of 18 triples only." in words
    empty = replace(test, triples={}, means={}, costs=())
    assert [*Choice(empty).sentences()] == [
        "The evidence supports no monitor: none has a value for each of 18 triples."
    ]
    failed = replace(empty, sources=tuple(replace(source, failed={"mine": "it broke"}) for source in test.sources))
    assert "The first of 1, mine: failed at first/plain, first/blurred and second/plain: it broke." in " ".join(
        Choice(failed).sentences()
    )


def test_two_sets_say_nothing_of_stability(stored: rw.Run) -> None:
    test = opened(stored.path)
    order = test.findings.order
    assert order is not None
    unknown = {label: replace(row, reason="too few sets") for label, row in order.ranks.items()}
    few = replace(test.findings, order=replace(order, before={}, ranks=unknown))
    assert "How stable that order is cannot be said: too few sets." in [
        *Choice(replace(test, findings=few)).sentences()
    ]


def test_monitors_that_guess_are_not_recommended(tmp_path: Path) -> None:
    run = rw.od_test(
        str(tiny.save_onnx(tmp_path / "tiny.onnx")),
        monitors=["random"],
        source=SIGNS,
        train=TRAIN,
        outliers={**OUTLIERS, "scenery": {"builtin": "scenery", "n": 20}},
        size=32,
        limit=20,
        workers=1,
        progress=rw.no_progress,
        out=tmp_path / "run",
    )
    words = rw.choose_monitor(run)
    assert words.startswith("random alone is ranked, with a mean accuracy of")
    assert "not clearly higher than the 50.0 % of guessing: the evidence supports no monitor." in words
    assert "fewer than two ranked monitors" in section_of(render(run.path), "od_test-stability")
    assert run.tables["od_test_stability"].empty
    assert run.verify() == []


def test_where_outliers_cost_more_the_paragraph_speaks_of_cost(copied: Path) -> None:
    record = json.loads((copied / "run.json").read_text())
    record["protocols"]["od_test"]["settings"] |= {"prior": 0.2, "cost": 6.0}
    (copied / "run.json").write_text(json.dumps(record))
    record_anew(copied)
    assert "with a mean expected cost of" in choose(copied)


def cost_row(monitor: str, seconds: float) -> CostRow:
    return CostRow("all", monitor, 1.0, seconds, 0.0, 4.0)


def test_unbeaten_are_those_that_no_other_beats_in_both() -> None:
    points = [
        (cost_row(name, seconds), Estimate(value))
        for name, seconds, value in (
            ("slow", 9, 0.7),
            ("best", 5, 0.9),
            ("cheap", 1, 0.6),
            ("same", 1, 0.6),
            ("bad", 2, 0.5),
        )
    ]
    assert [row.monitor for row, _ in unbeaten(points)] == ["cheap", "best"]
    assert [row.monitor for row, _ in unbeaten(points, higher=False)] == ["cheap", "bad"]
    assert unbeaten([]) == []


def test_many_monitors_are_shown_a_few_lines_at_a_time(stored: rw.Run) -> None:
    test = opened(stored.path)
    assert test.findings.sizes is not None
    curve = test.findings.sizes.of(test.labels[0])
    names = [f"m{index}" for index in range(2 * LINES + 1)]
    sizes = replace(test.findings.sizes, means={("all", name): curve for name in names})
    means = {("all", "all", name, "accuracy"): Estimate(0.9 - index / 100) for index, name in enumerate(names)}
    views = size_views(replace(test, means=means), sizes)
    assert [len(view) for view in views] == [LINES, LINES, 1]
    assert [label for view in views for label in view] == names


def test_a_monitor_without_both_means_has_no_line(stored: rw.Run) -> None:
    test = opened(stored.path)
    gaps = test.findings.gaps
    assert gaps is not None
    lost = replace(gaps, means={key: Estimate(np.nan) if key[0] == "msp" else cell for key, cell in gaps.means.items()})
    assert set(gap_labels(test, lost)) == {*test.labels} - {"msp"}


def test_at_one_source_the_means_are_its_own(stored: rw.Run) -> None:
    test = opened(stored.path)
    one = at_source(test, "second")
    assert one.mean("msp") == test.mean("msp", source="second/plain")
    assert one.findings.order is None
