"""The report of an OD-test: monitors that failed, undertrained sources and costs, where a reader looks first."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import roadworthy as rw
import tiny
from records import record_anew
from reports import headline, render
from roadworthy.protocols.od_test.facts import OdTestFacts
from roadworthy.protocols.od_test.loading import load_od_test
from roadworthy.report.facts import load_facts
from roadworthy.statistics import Estimate
from roadworthy.verdict import Criterion
from roadworthy.verdict.judge import Measurement, judge, judge_measurement

SIGNS = {"builtin": "signs", "n": 140}
OUTLIERS = {"scenery": {"builtin": "scenery", "n": 8}, "uniform": "uniform_noise", "normal": "normal_noise"}
PAIRS = "pairs of source and test set"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sources with one model; `random` is left out at the second."""
    folder = tmp_path_factory.mktemp("od_test")
    train = {"builtin": "signs", "split": "train", "n": 70}
    source = {
        "data": {"test": SIGNS, "train": train},
        "models": {"tiny": {"onnx": str(tiny.save_onnx(folder / "tiny.onnx"))}},
        "size": 32,
        "near": ["scenery"],
    }
    other = source | {"data": {"test": SIGNS | {"seed": 3}, "train": train}, "leave_out": ["random"]}
    study = {
        "name": "tiny",
        "sources": {"first": source, "second": other},
        "outliers": OUTLIERS,
        "monitors": ["msp", "random"],
        "protocols": {"od_test": {"limit": 8}},
    }
    return rw.run_study(study, out=folder / "run", workers=1, progress=rw.no_progress).path


def changed(stored: Path, out: Path, failed: Mapping[str, Mapping[str, str]], *weak: str) -> Path:
    """The run as if monitors had failed at some sources and the networks of others were below their floor."""
    run = shutil.copytree(stored, out / "run")
    record = json.loads((run / "run.json").read_text())
    for name, part in record["protocols"]["od_test"]["sources"].items():
        own = {"failed": failed.get(name, {}), "architectures": {"tiny": f"of {name}"}}
        part["context"] |= own | {"networks": {"tiny": [name]}}
        record["sources"][name]["models"]["tiny"]["artifacts"] = [name]
    network = {"builder": "reference", "seed": 0, "parameters": {}}
    competence = {"clean_accuracy": 0.5, "floor": 0.9}
    record["artifacts"] |= {name: {**network, "system": name, "competence": competence} for name in weak}
    (run / "run.json").write_text(json.dumps(record))
    competence_table = run / "tables" / "od_test_competence.parquet"
    table = pd.read_parquet(competence_table)
    table.assign(undertrained=table["source"].isin(weak)).to_parquet(competence_table, index=False)
    return record_anew(run)


def page_of(run: Path) -> str:
    return render(run).partition('<script type="application/json"')[0].replace("\xa0", " ")


def section(page: str, name: str) -> str:
    own = name if name in ("summary", "provenance") else f"od_test-{name}"
    return page.partition(f'<section id="{own}"')[2].partition("</section>")[0]


def opened(run: Path) -> OdTestFacts:
    return load_od_test(run, load_facts(run))


def test_a_monitor_that_failed_is_named_with_its_reason_where_a_reader_looks_first(
    stored: Path, tmp_path: Path
) -> None:
    run = changed(stored, tmp_path, {"first": {"mine": "no\nluck"}, "second": {"mine": "no\nluck", "random": "<b>"}})
    lines = headline(run)
    assert lines[2].startswith("Monitors: 3, 1 of them ranked")
    assert lines[3:] == ["mine failed at first and second: no luck", "random failed at second: <b>"]
    page = page_of(run)
    assert "<b>Monitors</b> 3, 2 of them failed" in page
    assert "<li>mine failed at first and second: no\nluck</li>" in section(page, "summary")
    assert "<li>random failed at second: &lt;b&gt;</li>" in section(page, "summary")
    assert "failed at first and second" in section(page, "ranking").partition('<th scope="row">mine</th>')[2]
    found = opened(run)
    assert found.methods[-1].label == "mine"
    assert found.mean("mine").reason == found.mean_alone("mine").reason == "failed at first and second: no\nluck"
    assert found.mean("random", source="second").reason == "left out by the study (leave_out)"


def test_single_triples_without_a_value_are_said_with_their_reason(stored: Path, tmp_path: Path) -> None:
    run = changed(stored, tmp_path, {})
    table = run / "tables" / "od_test_missing.parquet"
    row = {"source": "first", "valid_set": "normal", "test_set": "uniform", "monitor": "msp", "triples": 1}
    more = pd.DataFrame([row | {"reason": "too few"}, row | {"test_set": "scenery", "reason": "other"}])
    pd.concat([pd.read_parquet(table), more]).to_parquet(table, index=False)
    record_anew(run)
    assert headline(run)[3:] == ["msp has no value for 2 triples, the first at first, normal to uniform: too few"]


def test_nothing_is_said_of_failures_where_there_are_none(stored: Path) -> None:
    assert len(headline(stored)) == 3
    assert "of them failed" not in page_of(stored)


def test_an_undertrained_source_is_said_on_the_terminal_and_marked_wherever_it_appears(
    stored: Path, tmp_path: Path
) -> None:
    run = changed(stored, tmp_path, {}, "second")
    assert headline(run)[3:] == [
        "Undertrained, left out of the ranking and of means: second: 50.0 % on undisturbed images, "
        "below its floor of 90.0 %."
    ]
    page = page_of(run)
    mark = ' <span class="mark">undertrained</span>'
    assert f"<h3>second{mark}</h3>" in section(page, "pairs")
    assert f"to second{mark}" in section(page, "near")
    assert f'<th scope="row">second{mark}</th>' in section(page, "missing")
    assert f"first{mark}" not in page
    assert "second (undertrained)" in section(page, "provenance")
    assert "Accuracy by D_v and D_t, second (undertrained)" in page
    assert "held out to choose the epoch" in section(page, "summary")
    assert "50.0 %, floor 90.0 %" in section(page, "networks")
    assert section(page, "sources").count(f"architecture of second{mark}") == 2
    assert f"architecture of first{mark}" not in page


def test_undertrained_sources_alone_are_ranked_and_the_terminal_says_so(stored: Path, tmp_path: Path) -> None:
    run = changed(stored, tmp_path, {}, "first", "second")
    assert headline(run)[3].startswith("Undertrained, ranked all the same, as there is no other: first: 50.0 %")


def test_costs_are_means_over_the_sources_that_all_monitors_share(stored: Path, tmp_path: Path) -> None:
    found = opened(stored)
    own = {(row.source, row.monitor): row for row in found.costs}
    assert set(own) == {("first", "msp"), ("first", "random"), ("second", "msp")}
    assert {row.monitor: row.seconds_per_image for row in found.monitor_costs} == {
        label: own["first", label].seconds_per_image for label in ("msp", "random")
    }
    assert "Mean over first (other sources" in section(page_of(stored), "cost")
    run = changed(stored, tmp_path, {})
    timing = run / "tables" / "timing_od_test.parquet"
    rows = pd.read_parquet(timing)
    rows[rows["source"] + rows["monitor"] != "firstmsp"].to_parquet(timing, index=False)
    record_anew(run)
    assert {row.label for row in opened(run).monitor_costs} == {"msp, second", "random, first"}
    assert "Each source by itself, since none has all monitors," in section(page_of(run), "cost")


def test_a_mean_cost_leaves_undertrained_sources_out(stored: Path, tmp_path: Path) -> None:
    found = opened(changed(stored, tmp_path, {}, "first"))
    assert [source.named for source in found.cost_sources] == ["first (undertrained)"], "no other has both"
    msp = replace(found, costs=tuple(row for row in found.costs if row.monitor == "msp"))
    assert [source.named for source in msp.cost_sources] == ["second"]


@pytest.mark.parametrize("over", ["pooled", "worst"])
def test_a_verdict_names_the_unit_that_it_counts(over: Any) -> None:
    criterion = Criterion(id="R", metric="accuracy", at_least=0.8, over=over, min_groups=50)

    def because(value: float, lo: float, **unit: str) -> str:
        measured = Measurement({}, Estimate(value, lo, 0.95, n=90, groups=9), **unit)
        return judge([criterion], lambda c, confidence: [measured]).findings[0].sentence()

    assert re.search(rf"with about \d+ more {PAIRS} it would be a", because(0.85, 0.75, unit=PAIRS))
    assert f"rests on 9 {PAIRS}, 41 short of the 50 required" in because(0.9, 0.85, unit=PAIRS)
    assert re.search(r"with about \d+ more independent objects it would be a pass", because(0.85, 0.75))
    plain = Measurement({}, Estimate(0.9, 0.85, 0.95, n=90, groups=9))
    assert "rests on 9 independent objects, 41 short" in judge_measurement(criterion, plain).because


def test_where_outliers_cost_more_monitors_are_judged_by_expected_cost(stored: Path, tmp_path: Path) -> None:
    """The run as if outliers were rare and dear, with a monitor that is often right and worse than guessing."""
    run = changed(stored, tmp_path, {})
    record = json.loads((run / "run.json").read_text())
    record["protocols"]["od_test"]["settings"] |= {"prior": 0.05, "cost": 19.0}
    (run / "run.json").write_text(json.dumps(record))
    table = pd.read_parquet(run / "tables/od_test_methods.parquet")
    for metric, value in (("accuracy", 0.99), ("expected_cost", 0.96)):
        rows = (table["monitor"] == "msp") & (table["metric"] == metric)
        table.loc[rows, ["value", "lo", "hi"]] = [value, value - 0.02, value + 0.01]
    table.to_parquet(run / "tables/od_test_methods.parquet")
    table.to_csv(run / "tables/od_test_methods.csv", index=False)
    record_anew(run)
    found = opened(run)
    assert found.judged == "expected_cost"
    assert found.guesses == {"accuracy": 0.95, "expected_cost": pytest.approx(0.95), "auroc": 0.5}
    lines = "\n".join(headline(run))
    assert "Mean expected cost over" in lines
    assert "guessing 0.95" in lines
    page = page_of(run)
    assert "The lowest mean expected cost" in page
    assert "Not clearly better than guessing (the interval reaches 0.95" in page
    assert "Sorted by expected cost, which the thresholds were chosen for" in page
    assert opened(stored).judged == "accuracy"
