"""The report on outliers, differences, trained networks and comparisons: known values, every mix of protocols."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from records import Shown, changed, network_record, with_cases, with_networks
from reports import HOSTILE, Elements, accuracy_of, chart_data, headline, in_browser, make_run, picture, render
from roadworthy import cli
from roadworthy.core.errors import InputError
from roadworthy.engine.folder import RunFolder
from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.classification import questions as classification_questions
from roadworthy.protocols.classification.scatter import load_scatter
from roadworthy.protocols.comparison import COLUMNS, RESULTS
from roadworthy.protocols.ood import facts as outliers
from roadworthy.protocols.ood import figures as outlier_figures
from roadworthy.protocols.ood import questions as ood_questions
from roadworthy.protocols.ood import table_specs
from roadworthy.protocols.ood.facts import Outliers, load_outliers
from roadworthy.protocols.ood.gan_facts import Gan, Gans
from roadworthy.protocols.repeat_analysis import figures as difference_figures
from roadworthy.protocols.repeat_analysis.analysis import analyse
from roadworthy.protocols.repeat_analysis.facts import TUKEY, Differences, load_differences
from roadworthy.protocols.repeat_analysis.questions import BY_REPEAT
from roadworthy.report import comparison
from roadworthy.report import render_comparison as render_page
from roadworthy.report.facts import CLEAN, Condition, load_facts
from roadworthy.report.reading import Picture
from roadworthy.report.words import NO_BREAK
from roadworthy.statistics import Estimate

QUESTIONS = {q.name: q for q in (*classification_questions.QUESTIONS, *ood_questions.QUESTIONS)}
SETS = {
    "uniform_noise": ("literature", 0.99),
    "tiny": ("literature", 0.95),
    "swirl": ("derived", 0.83),
    "mixed": ("derived", 0.90),
    "fog-5": ("transformed", 0.45),
    "blur-5": ("transformed", 0.49),
    "rain-5": ("transformed", 0.75),
}
WIDTH = 0.03


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr("roadworthy.report._plotly", lambda: "var Plotly = {};")


def add_outliers(
    run: Path, models: list[str], sets: dict[str, tuple[str, float]] = SETS, failed: tuple[str, str] | None = None
) -> Path:
    """Give a run the tables of protocol ood: later models are better by 0.02, bounds are 0.03 to either side."""
    folder = RunFolder(run)
    rows, bins, kinds = [], [], {}
    for place, model in enumerate(models):
        for name, (kind, auroc) in sets.items():
            shift, _, level = name.partition("-")
            where = {"model": model, "ood_set": name, "kind": kind, "shift": shift if level else "none"}
            where |= {"level": int(level or 0), "foreign": "tiny" if level else ""}
            gone = (model, name) == failed
            for metric, value in (("auroc", auroc + 0.02 * place), ("fpr95_in", 1 - auroc)):
                numbers = {"value": value, "lo": value - WIDTH, "hi": value + WIDTH}
                numbers = dict.fromkeys(numbers, math.nan) if gone else numbers
                size = {"n": 0 if gone else 800, "groups": 0 if gone else 400, "sd": math.nan, "method": "b"}
                score = "" if gone else ["confidence", "certainty"][place % 2]
                reason = "case failed: no answer" if gone else ""
                rows.append({**where, "metric": metric, **numbers, **size, "reason": reason, "score": score})
                if not gone:
                    kinds.setdefault((model, kind, metric), []).append(value)
                    kinds.setdefault((model, "all", metric), []).append(value)
            edges = [{"from": i / 4, "to": (i + 1) / 4, "in": 10 * i, "out": 30 - 10 * i} for i in range(4)]
            bins += [] if gone else [{"model": model, "ood_set": name, **edge} for edge in edges]
    gallery = []
    for place, (name, (kind, _)) in enumerate(sets.items()):
        picture(run / "media" / f"out-{place}.png", 3, place)
        picture(run / "media" / f"in-{place}.png", 3, place + 50)
        gallery.append({"ood_set": name, "kind": kind, "media": f"out-{place}.png", "media_in": f"in-{place}.png"})
    folder.write_table(table_specs.SETS.name, pd.DataFrame(rows))
    folder.write_table(table_specs.SCORES.name, pd.DataFrame(bins))
    folder.write_table(table_specs.GALLERY.name, pd.DataFrame(gallery))
    means = [
        {"model": model, "kind": kind, "sets": len(values), "metric": metric, "value": float(np.mean(values))}
        for (model, kind, metric), values in kinds.items()
    ]
    folder.write_table(table_specs.BY_KIND.name, pd.DataFrame(means))
    shown = [
        Shown(model, name, 0, "no answer" if (model, name) == failed else "", {"ood_set": name, "kind": kind})
        for model in models
        for name, (kind, _) in sets.items()
    ]
    return changed(run, lambda record: with_cases(record, "ood", shown))


def test_a_network_that_was_trained_on_all_images_is_measured_on_these_and_said_to_be(tmp_path: Path) -> None:
    networks = {"h" * 64: network_record("a", training_accuracy=0.3, floor=0.9)}
    run = changed(both(tmp_path, ["a", "b"]), lambda record: with_networks(record, networks))
    text = words_of(run).replace(NO_BREAK, " ")
    floor = "below its floor of 90.0 % training accuracy"
    assert f"a: 30.0 % training accuracy on its own training images, {floor}." in text
    assert "30.0 % training accuracy on its own training images, none held out" in text


def only_outliers(run: Path) -> Path:
    """Take classification out of a run again."""
    for table in (run / "tables").glob("classification*"):
        table.unlink()
    return changed(run, lambda r: r.model_copy(update={"protocols": {"ood": r.protocols["ood"]}}))


def both(tmp_path: Path, models: list[str], **options: Any) -> Path:
    accuracy = accuracy_of(models, ["fog", "rain"], [1, 2])
    return add_outliers(make_run(tmp_path / "run", accuracy, mistakes=1), models, **options)


def add_networks(run: Path, reached: dict[str, list[float]], floor: float = 0.9) -> Path:
    networks = {
        f"{place}{seed}" * 32: network_record(model, seed, clean_accuracy=value, floor=floor)
        for place, (model, values) in enumerate(reached.items())
        for seed, value in enumerate(values)
    }
    return changed(run, lambda record: with_networks(record, networks))


def known(run: Path) -> Outliers:
    return load_outliers(run, load_facts(run))


def words_of(run: Path) -> str:
    return Elements(render(run)).text


def test_sets_are_ordered_by_kind_and_within_it_the_hardest_first(tmp_path: Path) -> None:
    found = known(both(tmp_path, ["a", "b"]))
    assert found.kinds == ("literature", "derived", "transformed")
    expected = ["tiny", "uniform_noise", "swirl", "mixed", "fog-5", "blur-5", "rain-5"]
    assert [each.name for each in found.sets] == expected
    assert [each.name for each in found.hardest(["a"])] == ["fog-5", "blur-5", "rain-5"]
    assert found.mean("a", "derived").value == pytest.approx(0.865)
    assert found.mean("b", "all").sets == 7


def test_the_sentences_name_the_hardest_set_and_say_when_the_model_is_misled(tmp_path: Path) -> None:
    said = [sentence.replace(NO_BREAK, " ") for sentence in outliers.sentences(known(both(tmp_path, ["a"])), "a")]
    assert said[0] == "The hardest outliers: fog-5, AUROC 0.450 (0.420 to 0.480)."
    assert said[1].startswith("On fog-5 AUROC is below 0.5, bounds and all: it is surer of these outliers")
    assert said[2].startswith("On blur-5 AUROC is below 0.5, which its bounds do not rule out as chance")
    assert said[3] == (
        "Mean AUROC over 7 sets of outliers 0.766: noise and foreign images 0.970, images made from test images 0.865 "
        "and foreign images under a shift 0.563."
    )
    assert len(said) == 4


def test_single_gans_that_mislead_are_named_though_their_configuration_is_not_bounded(tmp_path: Path) -> None:
    found = known(both(tmp_path, ["a"], sets={"lee": ("gan", 0.3)}))
    numbers = {"surrogate_accuracy": 0.9, "floor": 0.5, "undertrained": False, "accuracy_on_generated": 0.2}
    training = {"classifier_loss": 0.1, "stopped_by": "epochs", "epochs": 2, "kept_epoch": 2, "history": ()}
    training |= {"surrogate": "real", "competent_step": 1, "steps": 2, "kept_step": 2}
    pictures = {"drawn": Picture(tmp_path), "course": Picture(tmp_path)}
    gans = tuple(Gan("lee", index, index == 0, **numbers, **training, **pictures) for index in range(2))
    cells = {("a", "lee", 0): Estimate(0.2, 0.1, 0.3), ("a", "lee", 1): Estimate(0.45, 0.4, 0.52)}
    why = Estimate(0.3, reason="a bound over GANs needs at least 2 of them, not 1")
    found = replace(found, gans=Gans(gans, cells, {}, {}), cells={("a", "lee", "auroc"): why})
    unbounded, single = outliers.misled(found, "a")
    assert unbounded == f"On lee AUROC is below 0.5, without bounds ({why.reason})."
    assert single.startswith("It is surer of what GAN 0 of lee drew than of the images it knows")
    assert "GAN 1" not in single


def test_a_model_that_is_above_guessing_is_not_called_misled(tmp_path: Path) -> None:
    found = known(both(tmp_path, ["a"], sets={"swirl": ("derived", 0.5), "mixed": ("derived", 0.9)}))
    assert list(outliers.misled(found, "a")) == []
    assert "surer" not in outliers.brief(found, "a")[0]


def test_a_run_of_outliers_alone_renders(tmp_path: Path) -> None:
    run = only_outliers(both(tmp_path, ["a", "b"]))
    text = words_of(run)
    top = text[: text.index("Is the model less sure")]
    assert "AUROC, mean of all sets AUROC, hardest set" in top
    assert "The hardest outliers: fog-5, AUROC 0.450 (0.420 to 0.480)." in top
    assert "it is surer of these outliers than of the images it knows" in top
    assert "Hardest outliers AUROC with 95 % bounds" in top
    for absent in ("By shift and level", "Curves over level", "Worst mistakes", "Average under shifts"):
        assert absent not in text
    page = Elements(render(run))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert {attrs["href"] for tag, attrs in page.tags if tag == "a"} <= {f"#{name}" for name in ids}


def test_headline_of_outliers_alone_and_of_both(tmp_path: Path) -> None:
    run = both(tmp_path, ["a"])
    lines = headline(run)
    assert lines[1].startswith("Accuracy: a 98.0 %")
    assert lines[2].startswith("Worst condition: rain level 2: a ")
    alone = headline(only_outliers(run))
    assert alone == [*lines[:1], *lines[3:]]
    assert alone == [
        "Verdict: none. No acceptance criteria were given, so nothing was judged.",
        "Outliers: a mean AUROC 0.766 over 7 sets",
        "Hardest outliers: fog-5: a AUROC 0.450 (0.420 to 0.480)",
    ]


def test_both_protocols_stand_on_one_page(tmp_path: Path) -> None:
    text = words_of(both(tmp_path, ["a"]))
    places = [text.index(words) for words in ("By shift and level", "Is the model less sure", "How to read this")]
    assert places == sorted(places)
    top = text[: places[0]]
    assert "The hardest outliers: fog-5, AUROC 0.450 (0.420 to 0.480): it is surer of these outliers" in top
    assert "In-distribution is the positive class. The score is the largest class probability." in text
    assert "400 in-distribution images and 400 outliers" in text


def test_the_score_is_said_model_by_model_where_they_differ(tmp_path: Path) -> None:
    words = outliers.score_words(known(both(tmp_path, ["a", "b"])))
    assert words == (
        "The score is for a the largest class probability; for b the certainty that the model itself states."
    )


def test_charts_of_outliers_hold_the_values(tmp_path: Path) -> None:
    run = both(tmp_path, ["a", "b"])
    facts, found = load_facts(run), known(run)
    view = outlier_figures.set_chart(found, facts, "transformed", "auroc")
    assert view["layout"]["yaxis"]["ticktext"] == ["fog-5", "blur-5", "rain-5"]
    assert view["data"][1]["x"] == pytest.approx([0.47, 0.51, 0.77])
    assert view["data"][0]["error_x"]["array"] == pytest.approx([WIDTH] * 3)
    assert view["layout"]["shapes"][0]["x0"] == 0.5
    other = outlier_figures.set_chart(found, facts, "literature", "auroc")["layout"]["xaxis"]["range"]
    assert other == view["layout"]["xaxis"]["range"]
    histogram = outlier_figures.score_histogram(found, "a", "fog-5")["data"]
    assert histogram[0]["y"] == pytest.approx([0, 1 / 6, 1 / 3, 1 / 2], abs=1e-6)
    assert histogram[1]["y"] == pytest.approx([-1 / 2, -1 / 3, -1 / 6, 0], abs=1e-6)


def test_a_set_that_failed_has_no_value_and_says_why(tmp_path: Path) -> None:
    run = both(tmp_path, ["a"], failed=("a", "swirl"))
    found = known(run)
    assert found.cell("a", "swirl").missing
    assert "swirl" not in [each.name for each in found.hardest(["a"], 9)]
    text = words_of(run)
    assert "a at outliers swirl (ood) no answer" in text
    assert "swirl, a: no value: case failed: no answer" in text
    assert list(outliers.sentences(found, "a"))[-1] == "Outliers not measured: swirl."


def test_a_model_without_any_set_is_shown_as_such(tmp_path: Path) -> None:
    run = only_outliers(both(tmp_path, ["a"], sets={"swirl": ("derived", 0.8)}))
    rows = pd.read_parquet(run / "tables" / "ood.parquet").assign(value=math.nan, lo=math.nan, hi=math.nan)
    RunFolder(run).write_table(table_specs.SETS.name, rows.assign(reason="case failed: x", score=""))
    for name in ("ood_scores", "ood_by_kind"):
        table = pd.read_parquet(run / "tables" / f"{name}.parquet")
        RunFolder(run).write_table(name, table.iloc[:0])
    assert "no set was measured" in words_of(run)
    assert headline(run)[2] == "Hardest outliers: none was measured"


def test_a_kind_that_is_not_known_yet_comes_last_under_its_own_name(tmp_path: Path) -> None:
    run = both(tmp_path, ["a"], sets={"new": ("dreamt", 0.7), "swirl": ("derived", 0.8), "lee": ("gan", 0.6)})
    assert known(run).kinds == ("derived", "gan", "dreamt")
    text = words_of(run)
    assert "Drawn by a generator" in text
    assert "dreamt" in text


@pytest.mark.parametrize("name", ["tables/ood.parquet", "tables/ood_scores.parquet", "media/out-4.png"])
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    run = both(tmp_path, ["a"])
    (run / name).unlink()
    with pytest.raises(InputError, match=Path(name).name):
        render(run)


def test_hostile_names_are_shown_and_never_run(tmp_path: Path) -> None:
    nasty = '"><img src=x onerror=alert(1)>'
    run = both(tmp_path, [HOSTILE, nasty], sets={HOSTILE: (nasty, 0.4), "b": ("derived", 0.3)})
    run = add_networks(run, {HOSTILE: [0.2], nasty: [0.95]})
    html = render(run)
    page = Elements(html)
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert all((attrs.get("src") or "data:").startswith("data:") for tag, attrs in page.tags if tag == "img")
    plotted = json.dumps(chart_data(html))
    assert "<script" not in plotted
    assert "<img" not in plotted


def test_a_network_below_its_floor_is_marked_everywhere_and_ranks_nothing(tmp_path: Path) -> None:
    run = add_networks(both(tmp_path, ["good", "weak"]), {"good": [0.95, 0.96], "weak": [0.91, 0.68, 0.7]})
    tables = RunFolder(run)
    rows = pd.read_parquet(run / "tables" / "ood.parquet")
    rows.loc[(rows.model == "weak") & (rows.ood_set == "swirl") & (rows.metric == "auroc"), "value"] = 0.01
    tables.write_table(table_specs.SETS.name, rows)
    facts, found = load_facts(run), known(run)
    assert facts.undertrained == {"weak"}
    assert facts.named("weak") == "weak (undertrained)"
    assert [each.name for each in found.hardest(found.ranked, 1)] == ["fog-5"]
    text = words_of(run).replace(NO_BREAK, " ")
    top = text[: text.index("By shift and level")]
    assert "weak: 2 of 3 networks, the lowest 68.0 % on undisturbed images, below its floor of 90.0 %." in top
    assert top.count("weak undertrained") >= 2
    assert "good undertrained" not in text
    assert "All numbers of weak (undertrained)" in text
    assert "train cnn epochs 4" in text
    assert text.count("undertrained") > 15
    assert "weak (undertrained) 95.0 %" in headline(run)[1]
    assert "weak (undertrained)" in json.dumps(chart_data(render(run))["ood-outliers-0"])


def test_where_all_are_undertrained_all_rank(tmp_path: Path) -> None:
    run = add_networks(both(tmp_path, ["a"]), {"a": [0.5]})
    assert load_facts(run).ranked == ("a",)
    assert "unless no other model is there" in words_of(run)


def test_a_network_without_a_floor_is_not_judged(tmp_path: Path) -> None:
    run = both(tmp_path, ["a"])
    networks = {"h": network_record("a", clean_accuracy=0.3)}
    changed(run, lambda record: with_networks(record, networks))
    assert load_facts(run).undertrained == frozenset()
    assert "not known" in words_of(run)


REPEATS = 4
LEVELS = (1, 2)


def repeated(scatter: float = 0.01) -> dict[str, pd.DataFrame]:
    """Repeats with known means: fog is worse than rain, and the second model better by 0.05 in fog alone."""
    rng = np.random.default_rng(0)
    rows, sets = [], []
    for model in ("a", "b b"):
        for repeat in range(REPEATS):
            for shift, level in [("none", 0), *((s, x) for s in ("fog", "rain") for x in LEVELS)]:
                mean = {"none": 0.98, "fog": 0.6, "rain": 0.9}[shift] - 0.05 * level
                mean += 0.05 if (model, shift) == ("b b", "fog") else 0.0
                where = {"model": model, "shift": shift, "level": level, "repeat": repeat}
                for metric in ("accuracy", "auroc", "brier_mean"):
                    value = (mean if metric != "brier_mean" else 0.1 * (1 - mean)) + rng.normal(0, scatter)
                    rows.append({**where, "metric": metric, "value": value})
            for name, (kind, auroc) in SETS.items():
                shift, _, level = name.partition("-")
                where = {"model": model, "ood_set": name, "kind": kind, "shift": shift if level else "none"}
                where |= {"level": int(level or 0), "foreign": "tiny" if level or name == "tiny" else ""}
                sets.append({**where, "repeat": repeat, "metric": "auroc", "value": auroc + rng.normal(0, scatter)})
    return {"classification_repeats": pd.DataFrame(rows), "ood_repeats": pd.DataFrame(sets)}


@pytest.fixture(scope="module")
def analysed() -> dict[str, pd.DataFrame]:
    tables = repeated()
    return tables | analyse(tables, PROTOCOLS)


@pytest.fixture(scope="module")
def repeated_run(tmp_path_factory: pytest.TempPathFactory, analysed: dict[str, pd.DataFrame]) -> Path:
    accuracy = accuracy_of(["a", "b b"], ["fog", "rain"], list(LEVELS))
    made = make_run(tmp_path_factory.mktemp("repeated") / "run", accuracy, mistakes=1)
    for name, table in analysed.items():
        RunFolder(made).write_table(name, table)
    return add_outliers(made, ["a", "b b"])


@pytest.fixture
def tested(tmp_path: Path, repeated_run: Path) -> Path:
    """A run with repeats, to be changed at will."""
    return Path(shutil.copytree(repeated_run, tmp_path / "run"))


def differences_of(run: Path) -> Differences:
    differences = load_differences(run, load_facts(run), QUESTIONS.values())
    assert differences is not None
    return differences


def test_without_repeats_nothing_is_said_of_differences(tmp_path: Path) -> None:
    assert "Which differences are real" not in words_of(both(tmp_path, ["a"]))


def test_analyses_stand_in_the_layout_of_factor_df_f_and_p(tested: Path, analysed: dict[str, pd.DataFrame]) -> None:
    found = differences_of(tested)
    names = [question.name for question in found.questions]
    assert names == ["transformed", "classification", "ood_sets", "ood_transformed"]
    analysis = found.questions[1].analyses[0]
    lines = analysis.forms["thesis"].rows
    factors = ["Model", "Shift", "Level", "Model × Shift", "Model × Level", "Shift × Level", "Error"]
    assert [line.factor for line in lines] == factors
    table = analysed["anova_classification"]
    stored = table[(table.metric == "accuracy") & (table.form == "thesis")].set_index("factor")
    assert [line.df for line in lines] == [f"{int(stored.loc[name, 'df'])}" for name in stored.index if name != "Total"]
    assert lines[1].f == f"{stored.loc['shift', 'f']:.2f}"
    assert [line.p for line in lines[:2]] == ["<.001", "<.001"]
    assert lines[-1].f == lines[-1].p == ""
    assert all("," in analysis.forms[form].rows[0].df for form in (BY_REPEAT, "robust"))
    assert "Factor d.f. F p" in words_of(tested)


def test_the_report_leads_with_what_takes_the_repeat_for_the_unit(tested: Path) -> None:
    """Whatever the variances: no form that takes conditions for replicates is called the one to trust."""
    path = tested / "tables" / "anova_classification.parquet"
    table = pd.read_parquet(path)
    equal = (table.form == "equal variances") & (table.metric == "accuracy")
    for p, words in (
        (0.001, "do not spread alike in all cells (Brown-Forsythe, p <.01)"),
        (0.4, "No sign that the values spread differently between cells (Brown-Forsythe, p = .40"),
        (math.nan, "is not known (not tested)"),
    ):
        table.loc[equal, "p"] = p
        RunFolder(tested).write_table(QUESTIONS["classification"].tests.name, table)
        question = differences_of(tested).questions[1]
        assert words in question.analyses[0].equal_variances_words
        assert question.choices[0] == ("accuracy", BY_REPEAT)
        assert question.labels[:2] == ["Accuracy, by repeat", "Accuracy, Tukey-Kramer, conditions as replicates"]
    html, text = render(tested), words_of(tested)
    assert html.index("repeated measures by repeat") < html.index("which take every condition for evidence of its own")
    assert "They speak of these test images alone" in text
    assert "each: the largest difference is found from" in html
    assert not any(
        words in text for words in ("trust the form", "is the one to trust", "are sufficient", "All forms agree")
    )


def test_post_hoc_figure_shows_means_letters_and_where_groups_part(
    tested: Path, analysed: dict[str, pd.DataFrame]
) -> None:
    facts, question = load_facts(tested), differences_of(tested).questions[1]
    view = difference_figures.comparison_chart(question, facts, "accuracy", "shift", TUKEY)
    table = analysed["posthoc_classification_means"]
    stored = table[(table.metric == "accuracy") & (table.by == "shift") & (table.method == TUKEY)].set_index("cell")
    assert view["layout"]["yaxis"]["ticktext"] == ["fog", "rain"]
    assert view["data"][0]["x"] == pytest.approx(stored.loc[["fog", "rain"], "mean"].tolist(), rel=1e-5)
    assert view["data"][1]["text"] == stored.loc[["fog", "rain"], "letters"].tolist() == ["b", "a"]
    assert [shape["y0"] for shape in view["layout"]["shapes"]] == [0.5]
    cells = difference_figures.comparison_chart(question, facts, "accuracy", "model*shift", TUKEY)
    assert cells["layout"]["yaxis"]["ticktext"][:2] == ["fog, a", "fog, b b"]
    assert len(set(cells["data"][0]["marker"]["color"])) == 2
    worse = difference_figures.comparison_chart(question, facts, "brier_mean", "shift", TUKEY)
    assert worse["layout"]["yaxis"]["ticktext"] == ["fog", "rain"]


def test_models_are_compared_condition_by_condition(tested: Path) -> None:
    question = differences_of(tested).questions[1]
    pairs = {(p.condition, p.method): p for p in question.pairs if p.metric == "accuracy"}
    assert {condition for condition, _ in pairs} == {"all together", "fog", "rain", "level 1", "level 2"}
    assert question.pairs[0].method == "by repeat"
    for method in ("by repeat", "Tukey-Kramer, conditions as replicates"):
        fog = pairs["fog", method]
        assert (fog.one, fog.other) == ("a", "b b")
        assert fog.difference == pytest.approx(-0.05, abs=0.015)
        assert fog.hi < 0
        assert pairs["rain", method].lo < 0 < pairs["rain", method].hi


def test_a_comparison_that_could_not_be_made_says_why(tested: Path) -> None:
    pairs = pd.read_parquet(tested / "tables" / "posthoc_ood_sets.parquet")
    one = pairs[(pairs.by == "ood_set") & (pairs.method == TUKEY)].iloc[:1].assign(reason="no <b>variation</b>")
    means = pd.read_parquet(tested / "tables" / "posthoc_ood_sets_means.parquet")
    folder = RunFolder(tested)
    folder.write_table(QUESTIONS["ood_sets"].pairs.name, one)
    folder.write_table(QUESTIONS["ood_sets"].means.name, means.iloc[:0])
    html = render(tested)
    assert "no comparison: no &lt;b&gt;variation" in json.dumps(chart_data(html))
    assert "no <b>variation</b>" in Elements(html).text


def test_scatter_is_over_repeats_of_the_average(tested: Path, analysed: dict[str, pd.DataFrame]) -> None:
    rows = analysed["classification_repeats"]
    chosen = rows[(rows.model == "a") & (rows.metric == "accuracy") & (rows["shift"] == "fog")]
    averages = chosen.groupby("repeat")["value"].mean()
    scatter = load_scatter(tested, None, differences_of(tested))
    assert scatter is not None
    cell = scatter.estimate("accuracy", "a", [Condition("fog", level) for level in LEVELS])
    assert cell.value == pytest.approx(averages.mean())
    assert cell.sd == pytest.approx(averages.std())
    assert scatter.estimate("accuracy", "a", [CLEAN]).n == REPEATS
    assert scatter.estimate("accuracy", "a", []).missing


def test_every_chart_has_its_place_and_every_choice_its_view(tested: Path) -> None:
    html = render(tested)
    page, charts = Elements(html), chart_data(html)
    assert sorted(attrs["id"] for _, attrs in page.tags if attrs.get("class") == "chart") == sorted(charts)
    scatter = {"classification-scatter-level", "classification-scatter-shift-2", "classification-posthoc-1-4"}
    assert {"ood-outliers-0", "ood-scores-1", "ood-posthoc-1-0", *scatter} <= set(charts)
    for part in html.split('data-charts="')[1:]:
        names = part[: part.index('"')].split()
        choices = part[: part.index("</select>")].count("<option")
        assert names
        assert all(len(charts[name]) == choices for name in names)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all(attrs.get("scope") for tag, attrs in page.tags if tag == "th")
    assert render(tested) == html


OUTLIERS = {"protocol": "ood", "subject": "outliers"}


def change(condition: str, level: int, delta: float, result: str, **other: Any) -> dict[str, Any]:
    row = {"baseline": "old", "model": "new", "protocol": "classification", "subject": "", "condition": condition}
    row |= {"level": level, "metric": "accuracy", "before": 0.9, "after": 0.9 + delta, "change": delta}
    row |= {"lo": delta - 0.01, "hi": delta + 0.01, "p": 0.001, "p_holm": 0.004, "result": result}
    return {**row, "n": 600, "groups": 300, "method": "McNemar", "reason": "", **other}


def compared(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=COLUMNS)


def test_the_comparison_knows_the_results_and_columns_of_the_table() -> None:
    assert comparison.RESULTS == RESULTS
    fields = {*comparison.Change.__dataclass_fields__}
    assert fields - {"columns", "confidence"} == {*COLUMNS}, "both are for criteria, not for the table"


def test_a_comparison_page_shows_regressions_first_with_their_intervals() -> None:
    table = compared(
        change("fog", 5, -0.0625, "regression"),
        change("fog", 5, 0.2, "regression", metric="brier", p_holm=3.5e-11),
        change("rain", 5, 0.04, "improvement"),
        change("rain", 1, 0.001, "clear, but below the margin"),
        change("none", 0, 0.0, "no clear difference"),
        change("swirl", 0, math.nan, "not compared", **OUTLIERS, metric="auroc", reason="new was not shown it"),
    )
    html = render_page(table, "new against old", 0.01, 0.002)
    text = Elements(html).text
    order = (
        "2 regressions among 6 rows",
        "all 2 1 1 1 1 Accuracy 1 1 1 1 0 Brier score 1 0 0 0 0 AUROC of outliers 0 0 0 0 1",
        "The largest loss of Accuracy: new on fog, level 5, −0.0625 [−0.0725, −0.0525].",
        "The largest loss of Brier score: new on fog, level 5, +0.2000",
        "Improvements Accuracy, 1 row Condition",
        "Clear, but below the margin Chance does not explain",
        "All rows 6 rows",
    )
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "fog, level 5 −0.0625 −0.0725 to −0.0525 90.0 % 83.8 % .004 300 new against old" in text
    assert "0.900 1.100 < .001 300 new against old" in text
    assert "The margin, 0.002, is the least change that matters" in text
    assert "for accuracy it is 0.2 percentage points" in text
    assert "at most 1 %" in text
    assert "Not compared, 1 row: new was not shown it" in text
    charts = chart_data(html)
    heat = charts["changes-0"][0]
    assert heat["layout"]["yaxis"]["ticktext"] == ["fog", "undisturbed", "rain"]
    assert heat["data"][0]["z"] == [[None, None, -0.0625], [0.0, None, None], [None, 0.001, 0.04]]
    assert heat["data"][0]["text"][0][2] == "−0.062 ▼"
    assert heat["data"][0]["text"][2][1] == "+0.001 ≈"
    assert charts["changes-1"][0]["data"][1]["text"] == [["n/a"]]
    assert sorted(attrs["id"] for _, attrs in Elements(html).tags if attrs.get("class") == "chart") == sorted(charts)


def test_less_is_better_for_errors_and_orange_is_always_worse() -> None:
    row = change("fog", 1, 0.05, "regression", metric="ece")
    heat = comparison.charts(comparison.load_comparison(compared(row)))["changes-0"][0]["data"][0]
    assert heat["z"] == [[-0.05]]
    assert heat["text"] == [["+0.050 ▼"]]
    assert heat["colorscale"][0] == (0.0, "#ea7320")
    outlier = change("fog-5", 5, 0.05, "regression", metric="fpr95_in", **OUTLIERS)
    assert comparison.load_comparison(compared(outlier)).changes[0].gain == -0.05


def test_no_regression_is_no_proof_and_an_empty_table_renders() -> None:
    text = Elements(render_page(compared(change("fog", 1, 0.0, "no clear difference")), "t", 0.05, 0.0)).text
    assert "no regression among 1 row" in text
    assert "does not show that there is none" in text
    assert "no regression among 0 rows" in Elements(render_page(compared(), "t", 0.05, 0.0)).text


def test_hostile_names_in_a_comparison_are_shown_and_never_run() -> None:
    nasty = {"baseline": HOSTILE, "model": "<img src=x onerror=alert(1)>", "reason": HOSTILE}
    html = render_page(compared(change(HOSTILE, 1, -0.1, "regression", **nasty)), HOSTILE, 0.05, 0.001)
    page = Elements(html)
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert HOSTILE in page.text
    assert "<script" not in json.dumps(chart_data(html))


def test_compare_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = compared(change("fog", 5, -0.06, "regression"))
    monkeypatch.setattr("roadworthy.api.compare_runs", lambda *_, **__: table)
    page = tmp_path / "c.html"
    done = CliRunner().invoke(cli.app, ["compare", "runs/a", "runs/b", "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert f"page: {page}" in done.output
    assert "a and b" in Elements(page.read_text()).text
    gone = CliRunner().invoke(cli.app, ["compare", "a", "--html", str(tmp_path / "no" / "c.html")])
    assert isinstance(gone.exception, InputError)


@pytest.mark.slow
def test_a_browser_draws_every_chart_without_a_complaint(tested: Path, tmp_path: Path) -> None:
    table = compared(change("fog", 5, -0.06, "regression"), change("swirl", 0, math.nan, "not compared", **OUTLIERS))
    pages = {"run": render(add_networks(tested, {"a": [0.5]})), "compare": render_page(table, "t", 0.05, 0.001)}
    for name, html in pages.items():
        page = tmp_path / f"{name}.html"
        page.write_text(html)
        done = in_browser(page, tmp_path / f"profile-{name}")
        charts = [a for _, a in Elements(done.stdout).tags if "chart" in (a.get("class") or "").split()]
        assert len(charts) == len(chart_data(html))
        assert all(attrs.get("data-drawn") for attrs in charts)
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
