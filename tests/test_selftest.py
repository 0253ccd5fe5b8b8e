"""The self-test: everything has an item, truths are not our own output, and whatever is broken makes its item fail."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import known_answers
import known_monitors
import roadworthy as rw
from commands import call
from roadworthy.core.errors import InputError
from roadworthy.metrics import METRICS, Metric, mean_metric
from roadworthy.selftest import KINDS, items
from roadworthy.selftest.items import FAIL, NUMBERS, PASS, SKIPPED, TOLERANCE, TRUTHS, UNKNOWN, Item, differences, plain
from roadworthy.selftest.monitors import OWN_NETWORKS

LONG = {"c_frost", "rainfall", *OWN_NETWORKS}
"""Items that take seconds: textures are drawn and networks trained."""


def items_of(kind: str) -> dict[str, Item]:
    return {item.name: item for item in import_module(f"roadworthy.selftest.{kind}").items()}


ITEMS = {kind: items_of(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_is_registered_or_exported_has_an_item_and_a_truth(kind: str) -> None:
    known = {name for name, is_ours in import_module(f"roadworthy.selftest.{kind}").names() if is_ours}
    assert set(ITEMS[kind]) == known == set(items.truths(kind))


@pytest.mark.parametrize("kind", ["metrics", "statistics", "verdict", "engine"])
def test_stored_numbers_are_those_that_others_compute(kind: str) -> None:
    stored = json.loads((TRUTHS / f"{kind}.json").read_text())
    assert [*differences(stored, plain(known_answers.stored(kind)), 1e-9)] == []


def test_stored_scores_of_monitors_are_their_closed_forms() -> None:
    stored = items.truths("monitors")
    for name, scores in known_monitors.closed_forms().items():
        assert stored[name].expected["scores"] == pytest.approx(scores.tolist(), abs=1e-9)
        assert ITEMS["monitors"][name].summarise is None


CASES = [(kind, name) for kind in KINDS if kind != "engine" for name in ITEMS[kind] if name not in LONG]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_item_passes_here(kind: str, name: str) -> None:
    result = ITEMS[kind][name].run()
    assert result.status == PASS or result.note == "needs the package pytorch_ood", "\n".join(result.lines())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LONG))
def test_every_long_item_passes_here(name: str) -> None:
    result = (ITEMS["monitors"] | ITEMS["shifts"])[name].run()
    assert result.status == PASS, "\n".join(result.lines())


@pytest.mark.slow
@pytest.mark.parametrize("name", ITEMS["engine"])
def test_a_study_goes_from_end_to_end(name: str) -> None:
    result = ITEMS["engine"][name].run()
    assert result.status == PASS, "\n".join(result.lines())


class Off:
    """Whatever it stands for, with every number, text and flag that is read from it a little off."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return off(getattr(self.original, name))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return off(self.original(*arguments, **options))

    def __getitem__(self, key: Any) -> Any:
        return off(self.original[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(off(one) for one in self.original)

    def __len__(self) -> int:
        return len(self.original) + 1


def off(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 0.97 * value - 0.001 if math.isfinite(value) else 0.5
    if isinstance(value, str):
        return f"{value}?"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return (
            np.append(value + 1, 1)
            if value.dtype.kind in "iu"
            else ~value
            if value.dtype.kind == "b"
            else 0.97 * value - 0.001
        )
    if isinstance(value, dict):
        return {key: off(one) for key, one in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(off(one) for one in value)
    return Off(value)


@pytest.fixture
def lower() -> Iterator[Callable[[Metric], None]]:
    """Makes a metric a little too low, in its one function, until the test is over."""
    changed: list[tuple[Metric, str, Any]] = []

    def make_lower(metric: Metric) -> None:
        field = "of_images" if metric.of_images is not None else "of_answers"
        original = getattr(metric, field)
        changed.append((metric, field, original))

        @wraps(original)
        def too_low(*arguments: Any) -> Any:
            return 0.97 * original(*arguments)

        object.__setattr__(metric, field, too_low)

    yield make_lower
    for metric, field, original in changed:
        object.__setattr__(metric, field, original)


@pytest.mark.parametrize("name", ITEMS["metrics"])
def test_a_broken_metric_fails_its_item(
    name: str, lower: Callable[[Metric], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = ITEMS["metrics"][name]
    subject = items.resolve(item.subject)
    if isinstance(subject, Metric):
        lower(subject)
    else:
        module, _, attribute = item.subject.partition(":")
        monkeypatch.setattr(import_module(module), attribute, Off(subject))
    result = item.run()
    assert result.status == FAIL
    assert result.differences, result.note


@pytest.mark.parametrize("kind_and_name", [(k, n) for k in ("statistics", "verdict") for n in ITEMS[k]])
def test_a_broken_statistic_or_rule_fails_its_item(
    kind_and_name: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, name = kind_and_name
    module, _, attribute = ITEMS[kind][name].subject.partition(":")
    monkeypatch.setattr(import_module(module), attribute, Off(getattr(import_module(module), attribute)))
    result = ITEMS[kind][name].run()
    assert result.status == FAIL
    assert result.differences, result.note


def elsewhere(*parts: str) -> dict[str, str]:
    return dict.fromkeys(parts, "elsewhere")


@pytest.mark.parametrize("name", ["fog", "rotation", "c_jpeg_compression", "fgsm"])
def test_one_grey_value_is_seen_here_and_a_disturbance_that_is_too_weak_also_elsewhere(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = ITEMS["shifts"][name]
    shift = items.resolve(item.subject)
    original = shift.__call__

    def brighter(self: Any, batch: Any, streams: Any) -> Any:
        shown = original(self, batch, streams)
        images = shown.images.copy()
        images[0, 0, 0, 0] ^= 1
        return shown.with_images(images)

    recorded = items.truths("shifts")[name].machine
    monkeypatch.setattr(items, "machine_type", lambda *parts: {part: recorded[part] for part in parts})
    monkeypatch.setattr(shift, "__call__", brighter)
    assert item.run().status == FAIL
    monkeypatch.setattr(items, "machine_type", elsewhere)
    result = item.run()
    assert (result.status, result.compared) == (PASS, TOLERANCE)
    assert "another machine type, so within 1 in the mean" in result.comparison
    monkeypatch.setattr(shift, "__call__", lambda self, batch, streams: batch)
    assert item.run().status == FAIL


@pytest.mark.parametrize("name", ["vim", "odin", "boxes", "msp", "deep_knn", "stored"])
def test_a_broken_monitor_fails_its_item(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    item = ITEMS["monitors"][name]
    monitor = items.resolve(item.subject)
    original = monitor.rate
    monkeypatch.setattr(monitor, "rate", lambda *arguments: 0.97 * original(*arguments))
    assert item.run().status == FAIL
    if item.summarise is not None:
        monkeypatch.setattr(items, "machine_type", elsewhere)
        assert item.run().status == FAIL


@pytest.mark.parametrize("name", ["colour_swap", "shuffled"])
def test_a_broken_maker_of_outliers_fails_its_item(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    item = ITEMS["outliers"][name]
    maker = items.resolve(item.subject)
    monkeypatch.setattr(maker, "make", lambda self, data, **options: data)
    assert item.run().status == FAIL


def test_what_raises_is_a_failed_item_and_what_is_not_installed_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rw.metrics.ranking, "separation", lambda *arguments, **options: 1 / 0)
    result = ITEMS["metrics"]["ood.auroc"].run()
    assert (result.status, result.differences) == (FAIL, ())
    assert result.note == "it could not be computed: ZeroDivisionError: division by zero"
    monkeypatch.setattr(items, "_is_installed", lambda module: False)
    result = ITEMS["monitors"]["bin_class"].run()
    assert (result.status, result.note) == (SKIPPED, "needs the extra torch")
    test = rw.self_test(["bin_class"])
    assert "monitors bin_class: skipped, needs the extra torch" in test.lines()
    assert test.ok


def test_what_others_wrote_has_no_known_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    @mean_metric(label="Mine", sentence="Mine.", higher_is_better=True, name="mine_of_selftest")
    def mine(answers: Any) -> Any:
        return answers.correct * 1.0

    try:
        test = rw.self_test(["mine_of_selftest", "accuracy"])
    finally:
        del METRICS._members["mine_of_selftest"]
    assert [result.status for result in test.results] == [UNKNOWN, PASS]
    assert test.ok
    assert test.sentence().startswith("1 of 2 items pass and none fails (only mine_of_selftest, accuracy)")


def test_values_are_compared_as_they_are_written() -> None:
    assert [*differences({"a": [1.0, "nan"]}, plain({"a": np.array([1.0, np.nan])}), 0.0)] == []
    assert len([*differences({"a": 1, "b": 2}, {"a": 1, "c": 2}, 0.0)]) == 2
    assert [one.name for one in differences([100.0], [100.0 + 2e-7], 1e-9)] == ["1"]
    assert [*differences([100.0], [100.0 + 5e-8], 1e-9)] == []
    assert [one.got for one in differences({"a": True}, {"a": 1.5}, 9.0)] == ["1.5"]


def test_the_command_writes_a_page_and_json(tmp_path: Path) -> None:
    page, record = tmp_path / "page.html", tmp_path / "record.json"
    out = call("selftest", "--only", "ece", "--only", "verdict", "--out", str(page), "--json", str(record))
    assert "ok   metrics                 1 passed" in out
    assert "8 of 8 items pass and none fails (only ece, verdict)" in out
    stored = json.loads(record.read_text())
    assert stored["ok"]
    assert stored["counts"] == {"fail": 0, "skipped": 0, "no known answer": 0, "pass": 8}
    assert stored["items"][0]["comparison"] == "by hand, in exact fractions; within 1e-09"
    text = page.read_text()
    assert "<script" not in text
    assert not re.search(r"(src|href)=\"(?!#)", text)
    assert stored["environment"]["packages"]["numpy"] in text


def test_a_failing_item_is_told_in_full(lower: Callable[[Metric], None], tmp_path: Path) -> None:
    lower(rw.METRICS.get("accuracy"))
    test = rw.self_test(["accuracy"])
    assert not test.ok
    assert "1 of 1 items fail" in call("selftest", "--only", "accuracy", code=1)
    lines = test.lines()
    assert lines[0] == "FAIL metrics                 1 failed"
    assert any(line.startswith("    value: expected 0.6666666666666666, got 0.64666666666666") for line in lines)
    assert lines[-1].startswith("1 of 1 items fail (only accuracy): do not rely on results of this installation")
    test.write_page(tmp_path / "page.html")
    assert "expected <code>0.6666666666666666</code>" in (tmp_path / "page.html").read_text()
    hostile = replace(test.results[0], note="<b>&", name="<i>")
    replace(test, results=(hostile,)).write_page(tmp_path / "page.html")
    assert "<i>" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "acuracy"], "unknown item of the self-test 'acuracy': did you mean 'accuracy'?"),
        (["--only", "metrics/fog"], "unknown item of the self-test 'metrics/fog'"),
        (
            ["--out", "no/such/folder.html"],
            "cannot write no/such/folder.html: it must be a file in a folder that exists",
        ),
        (["--json", "."], "cannot write .: it must be a file in a folder that exists"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    assert sentence in call("selftest", *arguments, code=2)


def test_a_file_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        rw.self_test(["p_text"]).write_json(tmp_path)


def test_numbers_say_with_what_they_were_compared() -> None:
    result = ITEMS["metrics"]["auroc"].run()
    assert result.compared == NUMBERS
    assert re.fullmatch(r"scikit-learn [\d.]+, roc_auc_score; within 1e-09", result.comparison)
