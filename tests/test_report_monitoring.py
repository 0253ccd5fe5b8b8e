"""The page of the benchmark of monitors: answers first, nothing hidden, every name escaped, any number of anything."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from monitoring_tables import LEVEL, MONITORS, SETS, Sample, make_run
from reports import HOSTILE, Elements, chart_data, headline, in_browser, render, section_of, without_charts
from roadworthy.protocols.monitoring import words
from roadworthy.protocols.monitoring.facts import MonitoringFacts, Ranking, load_monitoring
from roadworthy.protocols.monitoring.metrics import METRICS
from roadworthy.protocols.monitoring.rank_figure import critical_difference
from roadworthy.protocols.monitoring.summaries import mean_over_sets
from roadworthy.report.facts import load_facts
from roadworthy.report.words import NO_BREAK
from roadworthy.statistics import Estimate

SMALL = Sample(
    models={"lenet": 0.95},
    sets=(SETS[0], SETS[4], SETS[8]),
    monitors={name: MONITORS[name] for name in ("energy", "boxes", "random")},
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model, three benchmarks of three kinds, three monitors."""
    return make_run(tmp_path_factory.mktemp("small") / "run", SMALL)


@pytest.fixture(scope="module")
def page(small: Path) -> str:
    return render(small)


def opened(run: Path) -> MonitoringFacts:
    return load_monitoring(run, load_facts(run))


def section(page: str, name: str, prefix: str = "monitoring-") -> str:
    return section_of(page, f"{prefix}{name}")


def rows_of(table: str) -> dict[str, list[str]]:
    """The cells of each row of a table by the name at its head, as plain text."""
    rows = re.findall(r"<tr>.*?</tr>", table.partition("<tbody>")[2].partition("</tbody>")[0], re.DOTALL)
    texts = [[Elements(cell).text for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]
    return {first: others for first, *others in texts}


def test_the_first_screen_says_which_monitor_helps_at_which_price(small: Path, page: str) -> None:
    lines = [line.replace(NO_BREAK, " ") for line in headline(small)]
    compared = "Compared: 3 monitors beside 1 model on 3 benchmarks of 3 kinds"
    assert lines[1] == f"{compared}, 50.0 % of a stream is OOD, in the order blocks."
    assert lines[2] == "Only 3 benchmarks: with fewer than 10 a comparison of monitors has little power."
    test = opened(small)
    recall, fpr = (test.mean("lenet", "energy", metric) for metric in ("recall", "fpr"))
    assert lines[3].startswith(f"lenet: energy helps the system most: it cancels {100 * recall.value:.1f} % (")
    assert f"at the price of {100 * fpr.value:.1f} % (" in lines[3]
    assert lines[3].endswith("mean of 3 benchmarks; the monitor is chosen on these data.")
    summary = without_charts(page).partition('id="summary"')[2].partition("</section>")[0]
    for line in lines[1:4]:
        assert line.removeprefix("lenet: ") in summary
    assert "Which class is positive" in summary, "the note below the sentences"


@pytest.mark.parametrize(
    ("cell", "first", "said"),
    [
        (Estimate(0.4, 0.1, 0.7, n=3), "energy helps the system most", "Better than chance at cancelling wrong"),
        (Estimate(0.4, -0.1, 0.7, n=3), "energy has the highest MCC", "Not clearly better than chance"),
        (Estimate(0.4, n=3), "energy has the highest MCC for the system, though not", "Not clearly better than chance"),
        (Estimate(-0.4, -0.6, -0.1, n=3), "boxes helps the system most", "Worse than chance, so that they hurt"),
    ],
)
def test_a_monitor_is_better_than_chance_by_its_bounds(small: Path, cell: Estimate, first: str, said: str) -> None:
    test = opened(small)
    overall = {**test.overall, ("lenet", "all", "energy", "system", "mcc"): cell}
    single = {key: cell for key in test.cells if key[2:] == ("energy", "system", "mcc")}
    sentences = [*words.sentences(replace(test, overall=overall, cells={**test.cells, **single}), "lenet")]
    assert sentences[0].startswith(first)
    assert re.search(rf"{said}[^.]*: energy", sentences[1])


def test_chance_in_the_id_images_that_benchmarks_share_does_not_average_out(small: Path) -> None:
    test = opened(small)
    assert words.system_standing(test, "lenet", "energy") == words.BETTER
    wide = mean_over_sets([Estimate(0.3, -0.1, 0.7)] * 3, "mcc")
    shared = replace(test, overall={**test.overall, ("lenet", "all", "energy", "system", "mcc"): wide})
    assert words.system_standing(shared, "lenet", "energy") == words.UNCLEAR


def test_a_monitor_that_leaves_few_right_answers_is_not_praised_without_saying_so(small: Path) -> None:
    test = opened(small)
    key = ("lenet", "all", "energy", "system", "fpr")
    said = words.best_words(replace(test, overall={**test.overall, key: Estimate(0.85, 0.8, 0.9, n=3)}), "lenet")
    assert said.endswith("It leaves less than half of the right answers.")


def test_no_monitor_is_said_to_help_where_none_does(small: Path) -> None:
    test = opened(small)
    unclear = {key: Estimate(0.1, -0.1, 0.3, n=3) for key in test.overall if key[3:] == ("system", "mcc")}
    assert words.best_words(replace(test, overall={**test.overall, **unclear}), "lenet").startswith("No monitor is")
    nothing = {key: Estimate(math.nan, reason="failed") for key in unclear}
    unknown = Estimate(math.nan, reason="there is no wrong answer")
    lost = {key: unknown for key in test.cells if key[3:] == ("system", "mcc")}
    assert words.best_words(replace(test, overall=nothing, cells={**test.cells, **lost}), "lenet") == (
        "No monitor has an MCC for the system on any benchmark: there is no wrong answer."
    )


def test_a_monitor_that_is_not_clearly_better_for_want_of_bounds_says_so(small: Path) -> None:
    test, few = opened(small), "a bootstrap bound needs 50 objects, not 28"
    said = f"Nothing is clear without bounds, and single benchmarks have none for energy: {few}."
    overall = {**test.overall, ("lenet", "all", "energy", "system", "mcc"): Estimate(0.6, n=3)}
    keys = [key for key in test.cells if key[2:] == ("energy", "system", "mcc")]
    lost = replace(test, overall=overall, cells={**test.cells, **dict.fromkeys(keys, Estimate(0.6, reason=few))})
    assert said in [*words.sentences(lost, "lenet")]
    assert said in [*words.brief(lost, "lenet")]
    bounded = replace(test, overall=overall, cells={**test.cells, **dict.fromkeys(keys, Estimate(0.6, -0.1, 1.0))})
    assert not any("without bounds" in sentence for sentence in words.sentences(bounded, "lenet"))


def test_means_over_fewer_benchmarks_do_not_compare(small: Path) -> None:
    test = opened(small)
    few = Estimate(0.9, 0.8, 1.0, n=2, reason="1 of 3 benchmarks have no value")
    test = replace(test, overall={**test.overall, ("lenet", "all", "random", "system", "mcc"): few})
    assert test.best("lenet") == "energy"
    from roadworthy.protocols.monitoring.figures import matrix, means

    view = matrix(test, "lenet", "system")
    place = test.monitors.index("random")
    assert view["data"][0]["text"][0][place] == "<b>.90*</b>"
    assert means(test, "lenet", "system")["data"][0]["marker"]["color"][place] == "#ffffff"


def test_ids_are_unique_and_every_chart_has_its_place_and_its_choices(page: str) -> None:
    elements = Elements(page)
    ids = [attributes["id"] for _, attributes in elements.tags if attributes.get("id")]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    charts = chart_data(page)
    places = [attributes["id"] for _, attributes in elements.tags if attributes.get("class") == "chart"]
    assert sorted(charts) == sorted(str(place) for place in places)
    assert all(chart for chart in charts.values())
    for select, options, targets in choosers(page):
        assert {len(charts[target]) for target in targets} == {options}, select
        panels = {value for name, value in panels_of(page) if name == select}
        assert panels in (set(), {str(index) for index in range(options)}), select


def choosers(page: str) -> list[tuple[str, int, list[str]]]:
    found = re.findall(r'<select id="([^"]+)" data-charts="([^"]+)".*?>(.*?)</select>', page, re.DOTALL)
    return [(name, options.count("<option"), targets.split()) for name, targets, options in found]


def panels_of(page: str) -> list[tuple[str, str]]:
    return re.findall(r'data-panel="([^"]+)" data-view="([^"]+)"', page)


def test_every_view_says_which_class_is_positive(page: str) -> None:
    for name in ("matrix", "benchmarks"):
        for view in words.VIEW_WORDS.values():
            assert view.positive in Elements(section(page, name)).text.replace("’", "'"), (name, view.label)


def test_the_best_of_a_table_is_bold(page: str) -> None:
    table = section(page, "benchmarks").partition("<h4>scenery")[2].partition("</table>")[0]
    body = table.partition("<tbody>")[2]
    rows = {Elements(row).text.split()[0]: row for row in body.split("<tr>")[1:]}
    assert [name for name, row in rows.items() if "<b>" in row.partition("bounds")[0]] == ["energy"], "the highest MCC"
    assert list(rows) == ["energy", "boxes", "random"], "the best for the system first; the model alone detects nothing"
    heads = re.findall(r"<abbr[^>]*>(.*?)</abbr>", table)
    assert heads == ["MCC", "FPR", "FNR", "Precision", "Recall", "F1, weighted", "AUROC"]


def test_the_price_on_id_data_stands_beside_the_model_alone(page: str) -> None:
    rows = rows_of(section(page, "id"))
    assert list(rows) == ["model alone", "a perfect monitor", "energy", "boxes", "random"]
    assert rows["a perfect monitor"][1].startswith("+0.2 %")
    assert rows["model alone"][0].startswith("0.940")
    change = float(rows["boxes"][1].split(" %")[0].replace("−", "-"))
    ratio = float(rows["boxes"][0].split()[0]) / 0.94 - 1
    assert change == pytest.approx(100 * ratio, abs=0.1)


def test_a_failed_monitor_is_named_with_its_reason_and_never_the_best(tmp_path: Path) -> None:
    sample = replace(SMALL, failed={"energy": "no\nluck <b>"})
    page = render(make_run(tmp_path / "run", sample))
    summary = without_charts(page).partition('id="summary"')[2].partition("</section>")[0]
    assert "energy has no decision on 3 benchmarks: no\nluck &lt;b&gt;." in summary
    assert "boxes helps the system most" in summary
    assert rows_of(section(page, "id"))["energy"] == ["n/a", "n/a", "n/a"]
    assert 'title="no\nluck &lt;b&gt;"' in section(page, "id")
    assert "no luck <b>" in Elements(section(page, "competence")).text
    squares = chart_data(page)["monitoring-matrix-0"][0]["data"][1]["text"]
    assert ["", "", "n/a"] in squares, "grey, in the last column"
    assert "<b>Monitors</b> 3, 1 of them without a decision somewhere" in without_charts(page)


def test_names_from_outside_are_shown_as_they_are(tmp_path: Path) -> None:
    sets = ((HOSTILE, "noise", True, True), ("a%{x}b", "anomaly", False, False))
    sample = Sample({HOSTILE: 0.9}, sets, {HOSTILE: 0.8, "50%{y}": 0.3, "failed": 0.2}, {"failed": HOSTILE})
    page = render(make_run(tmp_path / "run", sample))
    elements = Elements(page)
    assert sum(tag == "script" for tag, _ in elements.tags) == 3
    assert HOSTILE in elements.text
    texts = strings_in(chart_data(page))
    assert not [text for key, text in texts if "<script" in text and key != "legendgroup"]
    assert not [text for key, text in texts if "50%{y}" in text and key == "hovertemplate"], "a name is no template"


def strings_in(value: Any, key: str = "") -> list[tuple[str, str]]:
    """Every text in some JSON, with the key that it stands under."""
    if isinstance(value, dict):
        return [text for own_key, part in value.items() for text in strings_in(part, own_key)]
    if isinstance(value, list):
        return [text for part in value for text in strings_in(part, key)]
    return [(key, value)] if isinstance(value, str) else []


def test_one_benchmark_and_one_monitor_have_their_own_bounds(tmp_path: Path) -> None:
    sample = Sample({"lenet": 0.95}, SETS[:1], {"energy": 0.8})
    run = make_run(tmp_path / "run", sample)
    test = opened(run)
    assert test.mean("lenet", "energy") == test.cell("lenet", "scenery", "energy")
    assert headline(run)[3].endswith("on scenery.")
    charts = chart_data(render(run))
    assert [view["name"] for view in charts["monitoring-pareto-0"]] == ["scenery"], "no mean of one"
    assert charts["monitoring-matrix-0"][0]["layout"]["yaxis"]["ticktext"] == ["<b>Novel class</b>", "scenery"]


def test_two_sources_have_a_page_each(tmp_path: Path) -> None:
    other = replace(SMALL, models={"lenet": 0.8, "vgg": 0.9}, sets=SETS[:2])
    run = make_run(tmp_path / "run", sources={"first": SMALL, "second": other})
    page = render(run)
    ids = [attributes["id"] for _, attributes in Elements(page).tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert {"monitoring-0-matrix", "monitoring-1-matrix"} <= set(ids)
    assert "fog_3" in section(page, "setup", "monitoring-0-")
    assert "fog_3" not in section(page, "setup", "monitoring-1-")
    lines = headline(run)
    assert lines[1].startswith("first: Compared: 3 monitors beside 1 model on 3 benchmarks")
    assert sum(line.startswith("second: ") for line in lines) > 2


def test_an_undertrained_model_is_marked_wherever_it_appears(tmp_path: Path) -> None:
    page = render(make_run(tmp_path / "run", replace(SMALL, undertrained=frozenset({"lenet"}))))
    assert "A monitor of an undertrained model says little." in without_charts(page)
    mark = ' <span class="mark">undertrained</span>'
    for name in ("matrix", "pareto", "risk"):
        assert f"<h3>lenet{mark}</h3>" in section(page, name)
    assert '<span class="pill fail">undertrained</span>' in section(page, "competence")


def test_a_promise_is_kept_broken_or_not_made(page: str, small: Path) -> None:
    rows = rows_of(section(page, "thresholds"))
    assert rows["energy"][2] == "at most 5.0 % (95.0 %)"
    assert rows["boxes"][2] == "5.0 %"
    promises = {row["monitor"]: row["promise"] for row in opened(small).thresholds}
    pills = {"kept": "kept", "broken": "broken", "none": "none made"}
    assert {name: cells[6] for name, cells in rows.items()} == {name: pills[word] for name, word in promises.items()}
    row = {"model": "lenet", "class": "", "rule": "share", "threshold": 0.1, "reason": ""}
    test = replace(opened(small), thresholds=(row | {"monitor": "energy", "promise": "none"},))
    assert "No threshold promises how many ID images it rejects" in " ".join(words.warnings(test, "lenet"))
    made = tuple(row | {"monitor": name, "promise": name} for name in ("kept", "broken", "none"))
    said = [*words.warnings(replace(test, thresholds=made), "lenet")]
    assert said == [
        "The promise of the threshold is broken on ID test images: broken.",
        "Without a promise on how many ID images are rejected: none.",
    ]


def test_a_conformal_threshold_without_a_promise_says_what_it_lacks(small: Path) -> None:
    few = "a promise of at most 5 % with 95 % confidence needs 59 objects, not 28: none of them is rejected"
    row = {"model": "lenet", "class": "", "rule": "conformal", "threshold": -math.inf, "reason": few, "promise": "none"}
    names = ("energy", "msp")

    def said(*rows: dict[str, object]) -> list[str]:
        return [*words.warnings(replace(opened(small), thresholds=rows), "lenet")]

    lacking = [row | {"monitor": name} for name in names]
    assert said(*lacking) == [f"No threshold promises how many ID images it rejects: {few}."]
    kept = row | {"monitor": "boxes", "promise": "kept", "reason": ""}
    only = f"A promise on how many ID images are rejected is made only for boxes; the others: {few}."
    assert said(*lacking, kept) == [only]
    assert said(lacking[0], kept) == [f"Without a promise on how many ID images are rejected: energy ({few})."]
    in_order = row | {"monitor": "energy", "reason": ""}
    assert said(in_order) == ["No threshold promises how many ID images it rejects."]


def test_thresholds_per_class_name_each_monitor_once(small: Path) -> None:
    row = {"model": "lenet", "rule": "conformal per class", "threshold": 0.1, "reason": "class 2 has too few objects"}
    promises = {"": "none", "stop": "kept", "yield": "kept"}
    rows = [
        row | {"monitor": name, "class": label, "promise": promise}
        for name in ("energy", "msp")
        for label, promise in promises.items()
    ]
    test = replace(opened(small), thresholds=tuple(rows))
    assert not [*words.warnings(test, "lenet")], "every monitor makes promises, class by class"
    others = [{**row, "monitor": f"monitor {n}", "class": "", "rule": "share", "promise": "none"} for n in range(3)]
    said = [*words.warnings(replace(test, thresholds=(*rows, *others)), "lenet")]
    assert said == ["A promise on how many ID images are rejected is made only for energy and msp."]


def test_the_stream_has_strips_evidence_and_alarms(page: str, small: Path) -> None:
    (view, *_) = chart_data(page)["monitoring-timeline"]
    strips = [trace for trace in view["data"] if trace["type"] == "heatmap"]
    assert [trace["y"] for trace in strips] == [[0], [1], [2], [3], [4]]
    timeline = opened(small).timelines["lenet", "scenery"]
    assert strips[0]["z"] == [list(timeline.ood)]
    lines = [shape for shape in view["layout"]["shapes"] if shape["type"] == "line"]
    assert [line["y0"] for line in lines] == [pytest.approx(-math.log(LEVEL), rel=1e-5)] * 2
    alarm = next(trace for trace in view["data"] if trace.get("name") == "▽ alarm, exchangeability")
    bins = timeline.monitors["energy"]
    reached = next(row for row in bins if "exchangeability" in row["alarm"])
    assert alarm["x"][alarm["y"].index(2)] == (reached["from"] + reached["to"]) / 2
    rows = rows_of(section(page, "stream").partition("how late")[2])
    assert rows["random"][1] == "missed", "an infinite delay"
    assert rows["energy"][-1] == "240, 40 after the onset"
    assert rows["random"][-1] == "no alarm"


def test_the_critical_difference_diagram_is_to_scale() -> None:
    ranks = {"a": 1.25, "b": 2.0, "c": 2.75, "d": 4.0}
    tests = dict.fromkeys(("friedman", "friedman_p", "iman_davenport", "iman_davenport_p"), 0.5)
    cliques = (("a", "b"), ("b", "c", "d"))
    ranking = Ranking("all", "system", ranks, cliques, sets=12, distance=1.5, tests=tests, warning="")
    layout = critical_difference(ranking)["layout"]
    bars = [shape for shape in layout["shapes"] if shape["line"]["width"] == 5]
    assert [(bar["x0"], bar["x1"]) for bar in bars] == [(1.21, 2.04), (1.96, 4.04)]
    assert bars[0]["y0"] != bars[1]["y0"], "cliques that overlap lie one below the other"
    (distance,) = [s for s in layout["shapes"] if s["line"]["width"] == 2 and s["y0"] == s["y1"]]
    assert distance["x1"] - distance["x0"] == pytest.approx(1.5)
    names = {note["text"]: note.get("xanchor") for note in layout["annotations"]}
    assert {"a 1.25": "right", "b 2.00": "right", "2.75 c": "left", "4.00 d": "left"}.items() <= names.items()
    heights = {note["text"]: note["y"] for note in layout["annotations"]}
    assert heights["a 1.25"] > heights["b 2.00"], "lines do not cross: the outermost is on top"
    assert heights["4.00 d"] > heights["2.75 c"]


def test_the_critical_difference_ends_where_the_axis_does() -> None:
    tests = dict.fromkeys(("friedman", "friedman_p", "iman_davenport", "iman_davenport_p"), math.nan)
    for distance in (9.0, math.nan):
        ranking = Ranking("m", "detection", {"a": 1.0, "b": 2.0}, (), 2, distance, tests, "two sets")
        shapes = critical_difference(ranking)["layout"]["shapes"]
        assert max(shape["x1"] for shape in shapes) < 2.2


def test_safety_against_availability_marks_the_chosen_threshold_and_the_model_alone(page: str, small: Path) -> None:
    test = opened(small)
    view = next(v for v in chart_data(page)["monitoring-pareto-0"] if v["name"] == "fog_3")
    alone = next(trace for trace in view["data"] if trace.get("name") == "model alone")
    assert alone["y"] == [pytest.approx(test.cell("lenet", "fog_3", "none", "residual_hazard", "model_scope").value)]
    lines = [t for t in view["data"] if t["mode"] == "lines"]
    assert len(lines) == 3
    for line in lines:
        assert (line["x"][0], line["y"][0]) == (0, pytest.approx(alone["y"][0], rel=1e-4)), "where nothing is rejected"
    marks = [t for t in view["data"] if t["mode"] == "markers" and t.get("legendgroup") == "energy"]
    hazard = test.cell("lenet", "fog_3", "energy", "residual_hazard", "model_scope")
    assert marks[0]["y"] == [pytest.approx(hazard.value, rel=1e-5)]


def test_metrics_on_the_page_are_defined_in_words(page: str) -> None:
    definitions = Elements(without_charts(page).partition("<h3>Metrics</h3>")[2].partition("</dl>")[0]).text
    for name in ("mcc", "fpr", "aurc", "relative_change", "false_alarms_per_hour"):
        metric = next(metric for metric in METRICS if metric.name == name)
        assert f"{metric.label}, monitors {name}" in definitions


@pytest.mark.slow
def test_all_charts_are_drawn_in_a_browser(small: Path, page: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page)
    drawn = in_browser(file, tmp_path / "profile").stdout
    assert 'data-charts="drawn"' in drawn
    assert "could not be drawn" not in drawn.partition("<script")[0]
    assert drawn.count("data-drawn=") >= len(chart_data(page))


def test_examples_of_every_set_are_shown_where_the_run_has_them(page: str, tmp_path: Path) -> None:
    assert "<img" not in section(page, "setup")
    own = section(render(make_run(tmp_path / "run", replace(SMALL, has_pictures=True))), "setup")
    assert re.findall(r'alt="([^"]+)"', own) == [f"4 images of {n}" for n in ("ID side", *(s[0] for s in SMALL.sets))]
    assert own.count('src="data:image/webp;base64,') == 4


def test_where_ranks_cannot_be_compared_the_page_says_why(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", SMALL)
    file = run / "tables" / "monitoring_ranks.parquet"
    table = pd.read_parquet(file).query("model == 'lenet'")
    without = table.assign(rank=math.nan, warning=table["view"].map({"detection": "too few", "system": "<b>none"}))
    without.to_parquet(file, index=False)
    page = render(run)
    assert "rank-chart" not in page
    own = section(page, "ranks")
    assert "OOD detection: no comparison of ranks. too few" in own
    assert "System: no comparison of ranks. &lt;b&gt;none" in own


DOCS = (Path(__file__).parent.parent / "docs" / "monitoring.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)


def test_the_study_in_the_docs_is_one() -> None:
    import yaml

    from roadworthy.study import parse_study

    study, criteria = (yaml.safe_load(text) for language, text in BLOCKS if language == "yaml")
    parse_study({**study, **criteria}, "docs")


def test_the_decisions_in_the_docs_are_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    """Of four wrong answers three are cancelled, of four right ones none."""
    exec(next(text for language, text in BLOCKS if "evaluate_decisions" in text), {})
    values = dict(line.split() for line in capsys.readouterr().out.splitlines()[1:4])
    assert {name: float(value) for name, value in values.items()} == {
        "recall": 0.75,
        "fpr": 0.0,
        "mcc": pytest.approx(3 / math.sqrt(3 * 5), abs=1e-5),
    }


@pytest.mark.slow
def test_the_python_in_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny import save_onnx

    monkeypatch.chdir(tmp_path)
    save_onnx(tmp_path / "model.onnx")
    exec(next(text for language, text in BLOCKS if "rw.monitoring" in text), {})
    page = (tmp_path / "runs" / "monitoring" / "report.html").read_text()
    assert {"scenery", "fog"} <= set(re.findall(r"<h4>(\w+) ", page))
