"""Indicators: alarm limits against exact chances, what is watched, and rules that promtool checks and tests."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import roadworthy as rw
from commands import call, snapshot
from roadworthy.api import no_progress
from roadworthy.core.errors import InputError
from roadworthy.indicators import Indicators
from roadworthy.indicators.indicator import Rule, make_indicators, slug
from roadworthy.indicators.prometheus import IMAGES, SUM, rule_file
from roadworthy.indicators.writing import page
from roadworthy.protocols.in_service import Watchable, measured_bound
from roadworthy.statistics import Estimate
from roadworthy.statistics.alarm_limits import alarm_count, alarm_limit, divergence, is_beyond
from tiny import study

EVIL = 'm"}) or vector(1) # {{ $labels }}\n<script>'


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.floats(0.001, 0.999), st.sampled_from([0.05, 0.01, 0.001]))
def test_a_false_alarm_is_at_most_as_likely_as_stated(images: int, share: float, level: float) -> None:
    count = alarm_count(images, share, level)
    assert binom.sf(count - 1, images, share) <= level
    assert count > share * images
    assert count == images + 1 or is_beyond(count, images, share, level)
    assert not is_beyond(count - 1, images, share, level)


def test_the_limit_is_close_to_the_exact_one() -> None:
    exact = int(binom.isf(0.001, 1000, 0.05)) + 1
    assert exact <= alarm_count(1000, 0.05, 0.001) <= exact + 6
    assert divergence(0.3, 0.2) == pytest.approx(0.3 * math.log(1.5) + 0.7 * math.log(0.7 / 0.8))


@pytest.mark.parametrize(("share", "excess"), [(0.05, 2.0), (0.001, 3.0), (0.7, 2.0), (0.2, 1.1)])
def test_the_window_sees_what_it_says(share: float, excess: float) -> None:
    limit = alarm_limit(share, excess=excess)
    assert limit is not None
    assert limit.worse == (excess * share if excess * share < 1 else (1 + share) / 2)
    assert binom.sf(limit.count - 1, limit.images, limit.worse) >= 0.95
    assert limit.false_alarm == pytest.approx(binom.sf(limit.count - 1, limit.images, share), abs=1e-12)
    fewer = limit.images - 1
    assert binom.sf(alarm_count(fewer, share, 0.001) - 1, fewer, limit.worse) < 0.95


def test_edges_of_alarm_limits() -> None:
    nothing = alarm_limit(0.0)
    assert nothing is not None
    assert (nothing.images, nothing.count, nothing.false_alarm) == (1, 1, 0.0)
    assert alarm_limit(0.5, excess=1.0000001) is None
    with pytest.raises(ValueError, match="no alarm limit"):
        alarm_limit(1.0)
    assert not is_beyond(0, 0, 0.1, 0.01)
    assert not is_beyond(99, 100, 1.0, 0.01)


def test_means_between_0_and_1_keep_the_level() -> None:
    """Uniform numbers with mean 0.5: their sum is less scattered than that of zeros and ones."""
    rng = np.random.default_rng(0)
    alarms = sum(is_beyond(float(rng.random(200).sum()), 200, 0.5, 0.05) for _ in range(2000))
    assert alarms <= 0.05 * 2000


CRITERIA = [
    {"id": "REQ-1", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.2, "hazard": "misread"},
    {"id": "REQ-2", "metric": "accuracy", "where": {"shift": "noise"}, "at_least": 0.999},
    {"id": "REQ-3", "metric": "mean_confidence", "where": {"shift": "none"}, "at_least": 0.05},
    {"id": "REQ-4", "metric": "brier", "where": {"shift": "none"}, "at_most": 1.9},
    {"id": "REQ-5", "metric": "rejected", "where": {"protocol": "operating_points", "shift": "none"}, "at_most": 0.9},
    {"id": "REQ-6", "metric": "accuracy", "where": {"protocol": "classification"}, "over": "worst", "at_least": 0.01},
    {"id": "REQ-7", "metric": "accuracy_drop", "where": {"shift": "noise"}, "at_most": 0.99},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("indicators")
    content = study(
        folder,
        140,
        models={EVIL.replace("\n", " "): {"onnx": str(folder / "tiny.onnx")}},
        protocols={
            "classification": {"shifts": ["noise"], "levels": [1]},
            "operating_points": {"shifts": ["noise"], "levels": [1], "outliers": None, "reject": 0.1},
        },
        criteria=CRITERIA,
    )
    return rw.run_study(content, out=folder / "run", progress=no_progress)


@pytest.fixture(scope="module")
def found(run: rw.Run) -> Indicators:
    return rw.collect_indicators(run)


def one(found: Indicators, name: str, **where: Any) -> dict[str, Any]:
    chosen = [own.to_json() for own in found.indicators if own.watchable.name == name]
    (own,) = [own for own in chosen if all(own["where"].get(key) == value for key, value in where.items())]
    return own


def test_criteria_that_pass_are_watched_by_their_threshold(found: Indicators) -> None:
    accuracy = one(found, "accuracy", criterion="REQ-1")
    assert accuracy["needs_labels"]
    assert (accuracy["side"], accuracy["bound"], accuracy["note"]) == ("at_least", 0.2, "hazard: misread")
    assert accuracy["alarm"]["share"] == pytest.approx(0.8)
    assert "labelled images of this condition" in accuracy["images"]
    assert [*found.not_watched] == ["REQ-2"]
    confident = one(found, "mean_confidence", criterion="REQ-3")
    assert not confident["needs_labels"]
    assert "labelled" not in confident["images"]
    brier = one(found, "brier")
    assert "alarm" not in brier
    assert "not a mean over images from 0 to 1" in brier["reason"]
    assert "compares two sets of images" in one(found, "accuracy_drop")["reason"]
    assert "the bound holds for each of 2 conditions" in one(found, "accuracy", criterion="REQ-6")["note"]
    assert not one(found, "rejected", criterion="REQ-5")["needs_labels"]


def test_rejection_and_certainty_are_watched_without_labels(run: rw.Run, found: Indicators) -> None:
    rates = run.tables["operating_points"].query("metric == 'rejected' and shift == 'none'").iloc[0]
    (threshold,) = run.tables["operating_points_thresholds"]["threshold"]
    rejected = [own.to_json() for own in found.indicators if own.watchable.name == "rejected"][-1]
    assert rejected["bound"] == pytest.approx(rates["hi"])
    assert f"lies below {threshold!r}" in rejected["adds"]
    assert rejected["measured"]["value"] == pytest.approx(rates["value"])
    table = run.tables["classification"].query("metric == 'mean_confidence' and shift == 'none'").iloc[0]
    confident = [own.to_json() for own in found.indicators if own.watchable.name == "mean_confidence"][-1]
    assert (confident["side"], confident["bound"]) == ("at_least", pytest.approx(table["lo"]))
    low = one(found, "low_confidence")
    assert low["measured"]["value"] <= 0.05
    assert low["bound"] > low["measured"]["value"]
    classes = [own for own in found.indicators if own.watchable.name == "predicted_class"]
    assert len(classes) == 14
    assert sum(own.watchable.measured.value for own in classes) == pytest.approx(1)
    assert all(own.alarm is None and not own.needs_labels for own in classes)
    assert len({own.id for own in found.indicators}) == len(found.indicators)


def test_files_are_written_once_and_only_with_force_again(run: rw.Run, tmp_path: Path) -> None:
    before = snapshot(run.path)
    printed = call("indicators", run.path, "--out", tmp_path / "out", "--window", "7d")
    assert "not watched: criterion REQ-2, it is" in printed
    assert "nobody approved them" in printed
    assert snapshot(run.path) == before
    content = json.loads((tmp_path / "out" / "indicators.json").read_text())
    assert content["window"] == "7d"
    assert {own["needs_labels"] for own in content["indicators"]} == {True, False}
    text = (tmp_path / "out" / "indicators.md").read_text()
    assert "<script>" not in text
    assert text.index("## Without labels") < text.index("## With labelled samples") < text.index("## Not watched")
    assert "is there already" in call("indicators", run.path, "--out", tmp_path / "out", code=2)
    call("indicators", run.path, "--out", tmp_path / "out", "--force")
    for words, says in (
        (["--window", "soon"], "is not a length of time: write such as 12h"),
        (["--level", "0"], "--level lies between 0 and 1, not 0"),
        (["--excess", "1"], "--excess lies between 1 and inf"),
    ):
        assert says in call("indicators", run.path, "--out", tmp_path / "new", *words, code=2)
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    assert "is a file" in call("indicators", run.path, "--out", tmp_path / "file", code=2)


def watched(name: str, side: str, bound: float, **where: Any) -> Watchable:
    estimate = Estimate(bound, bound, bound, n=100, groups=100)
    return Watchable(name, {"model": "m", **where}, "1 or 0", "all", estimate, side=side, bound=bound)  # type: ignore[arg-type]


def indicators(*watchables: Watchable) -> Indicators:
    return Indicators("s", "pass", "0" * 64, Rule(), tuple(make_indicators(watchables, Rule())), {})


def test_ids_are_plain_and_differ() -> None:
    assert slug("accuracy", {"criterion": "REQ-12", "model": "v3"}) == "accuracy_req_12_v3"
    hostile = slug("a", {"model": EVIL})
    assert hostile.replace("_", "").isalnum()
    assert len(slug("a", {"model": "x" * 500})) <= 80
    twins = indicators(*(watched("a", "at_most", 0.1, model=name) for name in ("V3", "v3", "v 3")))
    assert len({own.id for own in twins.indicators}) == 3
    assert measured_bound(watched("a", "at_most", math.nan), "at_most").reason == "it was not measured"


@pytest.fixture
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return path


def test_promtool_accepts_the_rules_whatever_names_hold(found: Indicators, promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(rule_file(found, "1d"))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout, done.stderr)
    content = yaml.safe_load(path.read_text())
    assert EVIL.replace("\n", " ") in content["groups"][0]["rules"][-2]["annotations"]["summary"].replace(
        '{{ "{{" }}', "{{"
    ), "names are shown as they are"
    assert "<script>" not in page(found, "1d")


@pytest.mark.parametrize(
    ("side", "bound", "per_minute", "fires"),
    [
        ("at_most", 0.05, (10, 0.5), False),
        ("at_most", 0.05, (10, 1), True),
        ("at_least", 0.9, (10, 9), False),
        ("at_least", 0.9, (10, 8), True),
        ("at_most", 0.0, (10, 0), False),
        ("at_most", 0.0, (10, 0.01), True),
        ("at_most", 0.5, (10, 10), True),
    ],
)
def test_alerts_fire_beyond_the_bound_alone(
    side: str, bound: float, per_minute: tuple[float, float], fires: bool, promtool: str, tmp_path: Path
) -> None:
    own = indicators(watched("figure", side, bound))
    (tmp_path / "rules.yaml").write_text(rule_file(own, "2h"))
    (name,) = [one.id for one in own.indicators]
    alert = {"exp_labels": {"indicator": name, "needs_labels": "false", "severity": "page"}}
    rule = next(r for r in yaml.safe_load(rule_file(own, "2h"))["groups"][0]["rules"] if r.get("alert"))
    alert["exp_annotations"] = rule["annotations"]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": f'{counter}{{indicator="{name}",instance="{instance}"}}', "values": f"0+{rate / 2}x300"}
            for counter, rate in zip((IMAGES, SUM), per_minute, strict=True)
            for instance in ("a", "b")
        ],
        "alert_rule_test": [
            {"eval_time": "4h", "alertname": "RoadworthyBeyondBound", "exp_alerts": [alert] if fires else []},
            {"eval_time": "4h", "alertname": "RoadworthyTooFewImages", "exp_alerts": []},
        ],
    }
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(content))
    done = subprocess.run([promtool, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_it_is_said_where_nothing_is_counted(promtool: str, tmp_path: Path) -> None:
    own = indicators(watched("figure", "at_most", 0.05))
    (tmp_path / "rules.yaml").write_text(rule_file(own, "1h"))
    rule = next(r for r in yaml.safe_load(rule_file(own, "1h"))["groups"][0]["rules"] if "for" in r)
    labels = {"indicator": "figure_m", "needs_labels": "false", "severity": "info"}
    alert = {"exp_labels": labels, "exp_annotations": rule["annotations"]}
    test = {
        "interval": "1m",
        "alert_rule_test": [{"eval_time": "2h", "alertname": "RoadworthyTooFewImages", "exp_alerts": [alert]}],
    }
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(content))
    done = subprocess.run([promtool, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_numbers_out_of_range_are_refused(run: rw.Run) -> None:
    with pytest.raises(InputError, match="`power=` lies between 0 and 1"):
        rw.collect_indicators(run, power=1.0)
