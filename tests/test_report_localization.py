"""The page of localization: answers first, the tables of the paper, nothing hidden, every name escaped."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from localization_tables import MODELS, SETS, Sample, make_run
from records import changed, network_record, with_networks
from reports import HOSTILE, Elements, chart_data, headline, in_browser, render, section_of, without_charts
from roadworthy.protocols.localization import words
from roadworthy.protocols.localization.facts import LocalizationFacts, Network, load_localization
from roadworthy.protocols.localization.page import best_cells
from roadworthy.report.facts import load_facts
from roadworthy.report.words import NO_BREAK
from roadworthy.statistics import Estimate

FEW = {name: MODELS[name] for name in ("convnext", "convnext_head", "convnext_ensemble", "resnet")}
SMALL = Sample(models=FEW, sets=(SETS[0], SETS[6], SETS[7], SETS[8]))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks, one of them with three methods; ID data, heavy fog and rain, and objects outside."""
    return make_run(tmp_path_factory.mktemp("small") / "run", SMALL)


@pytest.fixture(scope="module")
def page(small: Path) -> str:
    return render(small)


def opened(run: Path) -> LocalizationFacts:
    return load_localization(run, load_facts(run))


def section(page: str, name: str, prefix: str = "localization-") -> str:
    return section_of(page, f"{prefix}{name}")


def table_rows(part: str) -> list[list[str]]:
    """The cells of each row of the first table of a part, as plain text."""
    table = part.partition("<table")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    return [[Elements(cell).text for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def test_the_first_screen_says_which_network_is_best_how_far_it_falls_and_which_method_knows_itself(
    small: Path, page: str
) -> None:
    lines = [line.replace(NO_BREAK, " ") for line in headline(small)][1:]
    assert lines == [
        "Compared: 2 networks, 3 methods and 4 models in all on 4 sets of images with one object each; asked is what "
        "it is and where it is.",
        "Accuracy on ID data: small_convnext is best with 95.0 % (93.0 to 96.6 %); by their bounds "
        "small_resnet may be as good.",
        "Accuracy under shift: small_convnext falls most in heavy rain (95.0 % to 75.0 %); small_resnet falls most in "
        "heavy rain (92.0 % to 72.0 %).",
        "ECE of small_convnext, mean of 2 sets besides ID: ensemble is lowest with 0.030 (head dropout 0.031, plain "
        "0.031); means have no bounds, and the order is chosen on these data.",
        "IoU on ID data: small_convnext is best with 0.850 (0.830 to 0.866); by their bounds "
        "small_resnet may be as good.",
        "IoU under shift: small_convnext falls most in heavy rain (0.850 to 0.650); small_resnet falls most in heavy "
        "rain (0.820 to 0.620).",
        "ECE of boxes (intervals) of small_convnext, mean of 3 sets besides ID: ensemble is lowest with 0.234 (head "
        "dropout 0.239); means have no bounds, and the order is chosen on these data.",
    ]
    summary = without_charts(page).partition('id="summary"')[2].partition("</section>")[0]
    assert all(line in summary for line in lines)
    assert "Its highest mean of the shifted sets: 80.2 % with method ensemble." in summary
    assert "ECE of boxes (intervals): no value, this model states no uncertainty of its boxes." in summary


def test_a_network_whose_bounds_exclude_the_others_is_best_without_reservation(small: Path) -> None:
    test = opened(small)
    key = ("resnet", "test", "all", "accuracy")
    apart = replace(test, cells={**test.cells, key: Estimate(0.7, 0.65, 0.75)})
    (sentence,) = words.best_on_id(apart, "classes")
    assert sentence.endswith("96.6\u00a0%).")
    better = replace(test, cells={**test.cells, key: Estimate(0.99, 0.98, 1.0)})
    assert "small_resnet is best" in next(words.best_on_id(better, "classes"))


def test_the_table_of_plain_networks_has_every_view_and_the_bounds(page: str) -> None:
    head, views, convnext, resnet = table_rows(section(page, "id-data"))
    assert [cell.split(" ")[0] for cell in head] == ["Network", "Accuracy", "NLL", "MAE", "IoU"]
    assert views == ["all classes", "vehicle_pedestrian"] * 2
    assert convnext[:2] == ["small_convnext", "95.0 % 93.0 to 96.6 %"]
    assert convnext[-1] == "0.850 0.830 to 0.866"
    assert resnet[0] == "small_resnet"


def test_the_tables_by_set_have_methods_below_their_network_and_sets_as_columns(small: Path, page: str) -> None:
    rows = table_rows(section(page, "table-classes"))
    assert rows[0] == ["Model", "ID", "heavy fog", "heavy rain"], "no column for a set without classes"
    blocks = [row[0] for row in rows[1:]]
    own = ["small_convnext", "+ head dropout", "+ ensemble"]
    assert blocks == [
        "Accuracy higher is better",
        *own,
        "ECE lower is better",
        *own,
        "Brier score lower is better",
        *own,
    ]
    boxes = table_rows(section(page, "table-boxes"))
    assert boxes[0] == ["Model", "ID", "heavy fog", "heavy rain", "ood objects"]
    assert boxes[6][1:] == ["n/a"] * 4
    assert 'title="this model states no uncertainty of its boxes"' in section(page, "table-boxes")
    assert ("convnext_ensemble", "heavy_rain", "iou") in best_cells(opened(small))
    assert section(page, "table-boxes").count("<b>0.662</b>") == 1


def test_methods_stand_beside_their_price(page: str) -> None:
    rows = table_rows(section(page, "methods"))
    assert rows[0][0] == "small_convnext"
    assert [row[0] for row in rows[1:]] == ["plain", "head dropout", "ensemble"]
    assert rows[2][1:] == ["20 passes", "20 passes", "4.83", "1.15", "12.5"]
    assert rows[3][1:] == ["5 members", "5 members", "21", "5", "62.5"]


def test_every_chart_has_its_element_and_no_id_is_used_twice(page: str) -> None:
    elements = Elements(page)
    ids = Counter(own["id"] for _, own in elements.tags if own.get("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    assert set(chart_data(page)) <= set(ids)
    panels = {own["data-panel"] for _, own in elements.tags if own.get("data-panel")}
    assert panels <= set(ids)


def test_charts_show_what_the_tables_say(page: str) -> None:
    charts = chart_data(page)
    (view,) = charts["localization-id-accuracy"]
    assert [trace["name"] for trace in view["data"]] == ["plain", "head dropout", "ensemble"]
    assert view["data"][0]["y"] == [0.95, 0.92]
    assert view["data"][1]["y"] == [0.953, None], "one network has no such method"
    (boxes,) = charts["localization-shift-iou"]
    assert [trace["name"] for trace in boxes["data"]] == ["small_convnext", "small_resnet"]
    assert boxes["data"][0]["x"].count("heavy rain") == 3
    for form in ("box_ece_interval", "box_ece"):
        (by_set,) = charts[f"localization-methods-{form}"]
        assert [trace["name"] for trace in by_set["data"]] == ["head dropout", "ensemble"], "plain ones have none"
    detail = charts["localization-detail-reliability"]
    assert [view["name"] for view in detail][3] == "small_convnext, ood objects"
    assert detail[3]["layout"]["annotations"][0]["text"] == "no values here"
    assert len(charts["localization-detail-kept-boxes"][0]["data"]) == 4, "two methods and their oracles"


def test_reliability_of_boxes_has_a_line_for_each_coordinate(small: Path, page: str) -> None:
    """Boxes that are too narrow: x0 too large, x1 too small, so that the mean of the four lies on the diagonal."""
    charts = chart_data(page)
    drawn = {name: charts[name] for name in charts if "-coordinates-" in name}
    assert [*drawn] == ["localization-detail-coordinates-1", "localization-detail-coordinates-2"], "plain has none"
    on_id = drawn["localization-detail-coordinates-1"][0]
    assert [line["name"] for line in on_id["data"]] == [
        "x0, left edge",
        "y0, top edge",
        "x1, right edge",
        "y1, bottom edge",
    ]
    left, top, right, bottom = (line["y"][4] for line in on_id["data"])
    assert (left, top, right, bottom) == pytest.approx((0.65, 0.5, 0.35, 0.5))
    assert len({line["line"]["color"] for line in on_id["data"]}) == 4
    lacking = drawn["localization-detail-coordinates-1"][-1]
    assert lacking["layout"]["annotations"][0]["text"] == "small_resnet has no head dropout for boxes"
    own = section(page, "uncertainty")
    assert "x1, right edge" in Elements(own).text
    assert "bias" in Elements(own).text


def test_a_run_of_an_earlier_version_shows_the_mean_of_the_coordinates_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", SMALL)
    path = run / "tables" / "localization_reliability.parquet"
    table = pd.read_parquet(path)
    table[table["coordinate"].isin(["", "y0"])].drop(columns="coordinate").to_parquet(path)
    (line,) = chart_data(render(run))["localization-detail-coordinates-1"][0]["data"]
    assert line["name"].startswith("mean of the four, in which errors of opposite sign cancel")


def test_both_forms_of_the_ece_of_boxes_stand_side_by_side(page: str) -> None:
    blocks = [row[0] for row in table_rows(section(page, "table-boxes"))]
    forms = ["ECE of boxes (intervals) lower is better", "ECE of boxes (quantiles) lower is better"]
    assert [block for block in blocks if block.startswith("ECE")] == forms


def test_an_undertrained_network_is_marked_and_left_out_of_every_order(tmp_path: Path) -> None:
    poor = {"n": network_record("convnext_ensemble", iou=0.4, floor=0.6)}
    run = changed(make_run(tmp_path / "run", SMALL), lambda record: with_networks(record, poor))
    test, page = opened(run), render(run)
    assert test.undertrained == {"convnext_ensemble"}
    assert "Undertrained: convnext_ensemble." in without_charts(page)
    assert "+ ensemble undertrained" in [row[0] for row in table_rows(section(page, "table-boxes"))]
    assert ("convnext_head", "heavy_rain", "iou") in best_cells(test)
    assert "head dropout is lowest" in next(words.best_method(test, "classes"))


def test_sets_whose_truth_is_too_large_are_marked(tmp_path: Path, page: str) -> None:
    turned = ("turned", "rotation", 3, "", True, "hull", 0.1)
    run = make_run(tmp_path / "run", replace(SMALL, sets=(SETS[0], turned)))
    sentences = " ".join(words.overview(opened(run)))
    assert "In turned the true boxes are hulls of turned boxes" in sentences
    assert "Accuracy under shift" in sentences
    assert "IoU under shift" not in sentences
    own = render(run)
    assert "turned *" in table_rows(section(own, "table-boxes"))[0]
    assert "turned" in table_rows(section(own, "table-classes"))[0]
    labels = {name: chart_data(own)[f"localization-shift-{name}"][0]["data"][0]["x"][-1] for name in ("ece", "iou")}
    assert labels == {"ece": "turned", "iou": "turned *"}
    row = table_rows(section(own, "sets"))[2]
    assert row[5:7] == ["hulls of turned boxes", "1.31"]
    assert "hulls" not in section(page, "table-boxes")


def test_parametrisations_seeds_and_searches_are_shown_where_they_are(tmp_path: Path, page: str) -> None:
    for name in ("losses", "seeds", "search"):
        assert section(page, name) == ""
    losses = {"convnext": ("corners", "mae"), "a": ("corners", "diou"), "b": ("centre", "mae")}
    models = dict.fromkeys(losses, ("small_convnext", "none"))
    sample = Sample(models=models, sets=SETS[:2], losses=losses, repeats=5, searched=["convnext"])
    run = make_run(tmp_path / "run", sample)
    own = render(run)
    assert table_rows(section(own, "losses"))[0] == ["Boxes", "diou", "mae"]
    assert table_rows(section(own, "losses"))[1][1] == "–"
    seeds = table_rows(section(own, "seeds"))
    assert seeds[1][:3] == ["convnext", "5", "95.4 %, 0.00001 95.0 to 95.8 %"]
    trials = table_rows(section(own, "search"))
    assert trials[6][-2:] == ["n/a", "pruned"]
    assert len(chart_data(own)["localization-trials"][0]["data"][0]["x"]) == 11
    assert opened(run).representative("small_convnext", "boxes") == Network(
        "convnext", "small_convnext", "none", opened(run).networks[0].tasks
    )


def test_a_network_that_was_tested_only_with_a_method_is_named_with_it(tmp_path: Path) -> None:
    sample = Sample(models={"a": ("found", "ensemble"), "b": ("blind", "none")}, sets=SETS[:2])
    run = make_run(tmp_path / "run", sample)
    assert [row[0] for row in table_rows(section(render(run), "id-data"))[2:]] == ["found (ensemble)", "blind"]
    assert "Accuracy on ID data: found (ensemble) is best" in " ".join(words.overview(opened(run)))


def test_a_second_model_of_the_same_network_and_method_is_named_where_figures_leave_it_out(tmp_path: Path) -> None:
    twice = {"a": ("small_resnet", "none"), "b": ("small_resnet", "none"), "c": ("small_resnet", "full")}
    test = opened(make_run(tmp_path / "run", Sample(models=twice, sets=SETS[:2])))
    assert test.undrawn == ("b",)
    assert "comes first in the study: b; tables/localization.csv has them" in " ".join(words.overview(test))


def test_a_shift_that_is_drawn_anew_is_no_training(small: Path) -> None:
    shown_twice = {("convnext", "heavy_rain", "iou"): (0.6, 0.7), ("convnext", "test", "iou"): (0.8,)}
    trained_twice = {("resnet", "test", "iou"): (0.8, 0.7)}
    test = replace(opened(small), repeats=shown_twice | trained_twice)
    assert test.repeated == ("resnet",)


def test_a_network_that_falls_nowhere_has_words(tmp_path: Path) -> None:
    easier = ("easy", "noise", 1, "", True, "mask", -0.01)
    test = opened(make_run(tmp_path / "run", Sample(models={"own": ("", "none")}, sets=(SETS[0], easier))))
    said = ["Accuracy is lower in no set than on ID data.", "IoU is lower in no set than on ID data."]
    assert [*words.brief(test, "own")] == said
    assert set(said) <= set(words.sentences(test, "own"))


@pytest.mark.parametrize("task", ["classes", "boxes"])
def test_one_model_with_one_task_on_one_set_has_a_page(tmp_path: Path, task: str) -> None:
    sample = Sample(models={"own": ("", "none")}, sets=SETS[:1], tasks=[task], views=())
    page = render(make_run(tmp_path / "run", sample))
    other = {"classes": "boxes", "boxes": "classes"}[task]
    assert section(page, f"table-{task}")
    assert section(page, f"table-{other}") == section(page, "shift") == section(page, "methods") == ""
    assert "on ID data: own has" in Elements(without_charts(page)).text


def test_several_sources_have_a_page_each(tmp_path: Path) -> None:
    one = Sample(models={"own": ("", "none")}, sets=SETS[:2])
    page = render(make_run(tmp_path / "run", sources={"city": one, "country": one}))
    assert section(page, "sets", "localization-0-")
    assert section(page, "sets", "localization-1-")
    ids = Counter(own["id"] for _, own in Elements(page).tags if own.get("id"))
    assert max(ids.values()) == 1


def test_names_are_shown_literally(tmp_path: Path) -> None:
    models = {HOSTILE: (HOSTILE, "none"), "other": (HOSTILE, "50%{y}")}
    sets = (SETS[0], (HOSTILE, "none", 0, HOSTILE, True, "mask", 0.1))
    page = render(make_run(tmp_path / "run", Sample(models=models, sets=sets, views=(HOSTILE,))))
    elements = Elements(page)
    assert sum(tag == "script" for tag, _ in elements.tags) == 3
    assert HOSTILE in elements.text
    texts = strings_in(chart_data(page))
    assert not [text for _, text in texts if "<script" in text]
    assert not [text for key, text in texts if "50%{y}" in text and key == "hovertemplate"], "a name is no template"


def strings_in(value: Any, key: str = "") -> list[tuple[str, str]]:
    """Every text in some JSON, with the key that it stands under."""
    if isinstance(value, dict):
        return [text for own_key, part in value.items() for text in strings_in(part, own_key)]
    if isinstance(value, list):
        return [text for part in value for text in strings_in(part, key)]
    return [(key, value)] if isinstance(value, str) else []


def test_examples_of_every_set_are_shown_where_the_run_has_them(tmp_path: Path, page: str) -> None:
    assert "<img" not in section(page, "sets")
    own = section(render(make_run(tmp_path / "run", replace(SMALL, has_pictures=True))), "sets")
    assert own.count('src="data:image/webp;base64,') == len(SMALL.sets)


@pytest.mark.slow
def test_all_charts_are_drawn_in_a_browser(page: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page)
    drawn = in_browser(file, tmp_path / "profile").stdout
    assert 'data-charts="drawn"' in drawn
    assert "could not be drawn" not in drawn.partition("<script")[0]
    assert drawn.count("data-drawn=") >= len(chart_data(page))
