"""Bounds of what GANs draw count GANs, not images; criteria on single GANs; comparisons GAN by GAN."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from scipy.stats import beta

from roadworthy.core.errors import InputError
from roadworthy.core.types import Stimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers
from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.changes import SAME_ANSWERS, by_bootstrap, by_units
from roadworthy.protocols.ood.tables import Evidence
from roadworthy.statistics import Estimate, paired_interval
from roadworthy.statistics.nested import further_units, nested_estimate
from roadworthy.statistics.paired import PairedChange, smallest_paired_p
from roadworthy.verdict import Criterion, judge, load_criteria

OBJECTS = 60
"""Test images, each an object of its own: enough for a bootstrap bound."""
TAIL = 0.025


def stored(model: str, confidences: Sequence[float], labels: Mapping[str, str], repeat: int = 0) -> StoredCase:
    ids = tuple(f"{labels.get('ood_set', '')}{row}" for row in range(len(confidences)))
    answers = Answers.from_probabilities(np.array([[c, 1 - c] for c in confidences]), [0] * len(ids))
    stimulus = Stimulus("d", labels.get("ood_set", "none"), repeat=repeat)
    return StoredCase(model, stimulus, dict(labels), load=lambda: Readouts(ids, ids, answers, None))


def inside(model: str = "m") -> StoredCase:
    """Scores 0.6 to 0.9, evenly."""
    return stored(model, np.linspace(0.6, 0.9, OBJECTS).tolist(), {})


def drawn(gan: int, share: float, name: str = "lee_gan", model: str = "m", repeat: int = 0) -> StoredCase:
    """What a GAN draws, of which this share scores below all test images and the rest above: that is its AUROC."""
    low = round(share * OBJECTS)
    labels = {"ood_set": name, "kind": "gan", "gan": str(gan), "artifact": f"{name}{gan}", "unit": "GANs"}
    return stored(model, [0.55] * low + [0.95] * (OBJECTS - low), labels, repeat)


def measured(evidence: Evidence, metric: str = "auroc", **where: Any) -> list[Any]:
    criterion = Criterion(id="G", metric=metric, where={"protocol": "ood", **where}, at_least=0.5)
    return [*evidence.measure(criterion, 0.95)]


@pytest.mark.parametrize("count", [2, 5, 10])
def test_equal_gans_are_bounded_by_their_number(count: int) -> None:
    """G GANs that all have AUROC m: the bound over GANs is m 0.025^(1/G), and that over objects adds to it."""
    evidence = Evidence([inside(), *(drawn(gan, 0.75) for gan in range(count))])
    (configuration,), one = measured(evidence, ood_set="lee_gan"), measured(evidence, ood_set="lee_gan", gan=0)[0]
    images = one.estimate
    assert configuration.estimate.value == images.value == 0.75
    assert (configuration.unit, configuration.estimate.groups) == ("GANs", count)
    assert (one.unit, images.groups) == ("test objects and images of this GAN", 2 * OBJECTS)
    apart = 1 - TAIL ** (1 / count)
    lo = 0.75 - math.hypot(0.75 * apart, 0.75 - images.lo)
    hi = 0.75 + math.hypot(0.25 * apart, images.hi - 0.75)
    assert configuration.estimate.lo == pytest.approx(max(lo, 0), abs=0.002)
    assert configuration.estimate.hi == pytest.approx(min(hi, 1), abs=0.002)


def test_tables_say_what_groups_count() -> None:
    evidence = Evidence([inside(), stored("m", [0.61] * OBJECTS, {"ood_set": "noise", "kind": "literature"})])
    assert "unit" not in evidence.tables()["ood"], "without GANs all rows count objects"
    cases = [inside(), stored("m", [0.61] * OBJECTS, {"ood_set": "noise", "kind": "literature"})]
    evidence = Evidence([*cases, drawn(0, 0.5), drawn(1, 1.0)])
    evidence._gan_rows = dict  # type: ignore[method-assign]  # trainings are not stored here
    rows = evidence.tables()["ood"].query("metric == 'auroc'").set_index("ood_set")
    assert rows["unit"].to_dict() == {"noise": "objects", "lee_gan": "GANs"}
    assert rows["groups"].to_dict() == {"noise": 2 * OBJECTS, "lee_gan": 2}
    assert rows["n"].to_dict() == {"noise": 2 * OBJECTS, "lee_gan": 2 * OBJECTS}


def test_tables_of_a_run_before_gans_were_counted_stay_as_they_are_and_criteria_count_gans() -> None:
    cases = [inside(), drawn(0, 0.5), drawn(1, 1.0)]
    before = [replace(case, labels={k: v for k, v in case.labels.items() if k != "unit"}) for case in cases]
    evidence = Evidence(before)
    evidence._gan_rows = dict  # type: ignore[method-assign]  # trainings are not stored here
    row = evidence.tables()["ood"].query("metric == 'auroc'").iloc[0]
    assert "unit" not in row
    assert row["groups"] > 2, "objects and images"
    (configuration,) = measured(evidence, ood_set="lee_gan")
    assert (configuration.unit, configuration.estimate.groups) == ("GANs", 2)
    assert configuration.estimate.lo < row["lo"]


def test_one_gan_has_no_bound_and_says_why() -> None:
    evidence = Evidence([inside(), *(drawn(0, 0.75, repeat=repeat) for repeat in range(3))])
    (one,) = measured(evidence, ood_set="lee_gan")
    assert one.estimate.value == 0.75
    assert one.estimate.groups == 1
    assert math.isnan(one.estimate.lo)
    assert one.estimate.reason == "a bound over GANs needs at least 2 of them, not 1"
    images = measured(evidence, ood_set="lee_gan", gan=0)[0].estimate
    assert images.lo < 0.75 < images.hi, "of this GAN's images much is known"


def test_a_gan_counts_once_however_often_it_is_shown() -> None:
    often = [drawn(0, 1.0, repeat=repeat) for repeat in range(3)]
    once = Evidence([inside(), drawn(0, 1.0), drawn(1, 0.5)])
    (more,), (less,) = (measured(e, ood_set="lee_gan") for e in (Evidence([inside(), *often, drawn(1, 0.5)]), once))
    assert more.estimate.value == less.estimate.value == 0.75
    assert more.estimate.groups == less.estimate.groups == 2


def test_gans_that_fool_wholly_or_not_at_all_have_clopper_pearsons_bounds() -> None:
    exact = Estimate(0.75, 0.75, 0.75, n=600, groups=120)
    estimate = nested_estimate([1.0] * 15 + [0.0] * 5, exact, "GANs")
    assert estimate.lo == pytest.approx(beta.ppf(TAIL, 15, 6), abs=0.002)
    assert estimate.hi == pytest.approx(beta.ppf(1 - TAIL, 16, 5), abs=0.002)


def test_bounds_hold_for_the_next_gan_where_gans_differ_widely() -> None:
    """GANs of AUROC 0.98, and one in three of 0.2, as the thesis found; five are trained, 60 objects are tested."""
    rng = np.random.default_rng(0)
    truth, hits, of_images = 0.98 * 2 / 3 + 0.2 / 3, 0, 0
    for _ in range(200):
        means = rng.choice([0.98, 0.98, 0.2], 5)
        value = float(np.clip(means.mean() + rng.normal(0, 0.02), 0, 1))
        within = Estimate(value, value - 0.04, value + 0.04)
        estimate = nested_estimate([*(means - means.mean() + value).clip(0, 1)], within, "GANs")
        hits += estimate.lo <= truth <= estimate.hi
        of_images += within.lo <= truth <= within.hi
    assert hits >= 190
    assert of_images < 60, "bounds that count images miss it most of the time"


def judged(evidence: Evidence, at_least: float, **changes: Any) -> Any:
    where = {"protocol": "ood", **changes.pop("where", {"ood_set": "lee_gan"})}
    criterion = Criterion(id="G", metric="auroc", where=where, at_least=at_least, **changes)
    return judge([criterion], evidence.measure).findings[0]


def test_a_criterion_on_a_configuration_says_how_many_gans_it_lacks() -> None:
    few = [0.9, 0.95]
    finding = judged(Evidence([inside(), *(drawn(gan, share) for gan, share in enumerate(few))]), 0.7)
    assert finding.status == "inconclusive"
    needed = finding.rows[0].further_groups
    assert f"with about {needed} more GANs it would be a pass" in finding.sentence()
    for added, status in ((needed - len(few), "inconclusive"), (needed, "pass")):
        shares = few * ((added + len(few)) // 2)
        assert judged(Evidence([inside(), *(drawn(g, s) for g, s in enumerate(shares))]), 0.7).status == status
    assert (
        "no number of further GANs would settle it alone"
        in judged(Evidence([inside(), drawn(0, 0.9), drawn(1, 0.95)]), 0.92).sentence()
    )
    assert "needs at least 2 of them, not 1" in judged(Evidence([inside(), drawn(0, 0.9)]), 0.5).sentence()


def test_a_criterion_on_single_gans_and_on_the_worst_of_them() -> None:
    shares = [0.9, 0.95, 0.3]
    evidence = Evidence([inside(), *(drawn(gan, share) for gan, share in enumerate(shares)), drawn(0, 0.2, "other")])
    assert judged(evidence, 0.7, where={"ood_set": "lee_gan", "gan": 1}).status == "pass"
    third = judged(evidence, 0.7, where={"ood_set": "lee_gan", "gan": 2})
    assert third.status == "fail"
    assert third.rows[0].measurement.where == {"model": "m", "ood_set": "lee_gan", "gan": 2}
    worst = judged(evidence, 0.7, where={"ood_set": "lee_gan", "gan": "all"}, over="worst")
    assert worst.status == "fail"
    assert worst.rows[0].measurement.where == {"model": "m", "ood_set": "lee_gan", "gan": 2, "of": "3 conditions"}
    assert judged(evidence, 0.7, where={"ood_set": "lee_gan", "gan": [0, 1]}, over="worst").status == "pass"
    assert len(judged(evidence, 0.7, where={"gan": "all"}).rows) == 4


def test_the_criteria_of_the_docs_are_read_as_they_say() -> None:
    page = (Path(__file__).parent.parent / "docs" / "criteria.md").read_text()
    block = next(text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "lee_gan" in text)
    criteria = load_criteria(yaml.safe_load(block))
    shares = [0.9, 0.95, 0.3]
    evidence = Evidence([inside(), *(drawn(gan, share) for gan, share in enumerate(shares))])
    findings = judge(criteria, evidence.measure).findings
    assert [finding.status for finding in findings] == ["inconclusive", "fail", "fail"]
    assert findings[2].rows[0].measurement.where["gan"] == 2


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"ood_set": "lee_gan", "gan": 7}, r"asks for gan 7, but the run has gan \[0, 1\]"),
        ({"ood_set": "noise", "gan": 0}, "asks for ood_set 'noise'"),
        ({"gan": "hardest"}, "asks for gan 'hardest', but the run has gan"),
    ],
)
def test_gans_that_are_not_there_are_refused_before_anything_runs(where: dict[str, Any], words: str) -> None:
    noise = stored("m", [0.6] * OBJECTS, {"ood_set": "noise", "kind": "literature"})
    criterion = Criterion(id="G", metric="auroc", where={"protocol": "ood", **where}, at_least=0.5)
    with pytest.raises(InputError, match=words):
        PROTOCOLS.get("ood")().check([inside(), noise, drawn(0, 0.5), drawn(1, 0.5)], criterion)
    with pytest.raises(InputError, match="but the run has no GANs"):
        PROTOCOLS.get("ood")().check([inside(), noise], criterion.model_copy(update={"where": {"gan": 0}}))


def test_a_gan_that_failed_is_inconclusive_by_itself() -> None:
    lost = StoredCase("m", drawn(1, 0.5).stimulus, drawn(1, 0.5).labels, failure="it diverged")
    evidence = Evidence([inside(), drawn(0, 0.9), lost])
    assert "it diverged" in judged(evidence, 0.5, where={"gan": 1}).sentence()
    assert judged(evidence, 0.5, where={"gan": 0}).status == "pass"
    whole = judged(evidence, 0.5)
    assert whole.status == "inconclusive"
    assert "1 of 2 GANs left out: it diverged" in whole.sentence()


def test_two_models_are_compared_gan_by_gan() -> None:
    """Five GANs that are each 0.4 easier after: the GANs' bound in [-1, 1] is -1 + 1.4 0.025^(1/5)."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.001, 1000)
    before, after = 0.4 + noise, 0.8 + noise + rng.normal(0, 1e-9, 1000)
    change = PairedChange("lee_gan", 0, "auroc", before=0.4, after=0.8, n=120, groups=120)

    def units(change: PairedChange, differences: list[float], after: NDArray[np.float64]) -> PairedChange:
        values = change.after, change.before, after, before, change.groups
        within = partial(paired_interval, *values)
        by_objects = by_bootstrap(change, before, after)
        return by_units(by_objects, differences, "GANs", within, smallest_paired_p(before, after))

    tested = units(change, [0.4] * 5, after)
    assert tested.groups == 5
    assert tested.lo == pytest.approx(-1 + 1.4 * TAIL**0.2, abs=0.004)
    assert tested.hi == pytest.approx(1 - 0.6 * TAIL**0.2, abs=0.004)
    assert tested.p == pytest.approx(2 * (1 / 1.4) ** 5, abs=0.01), "where the bound reaches 0"
    one = units(change, [0.4], after)
    assert one.reason == "a bound over GANs needs at least 2 of them, not 1"
    assert math.isnan(one.p)
    same = units(PairedChange("g", 0, "auroc", before=0.4, after=0.4, groups=120), [0.0] * 2, before)
    assert (same.p, same.reason, same.groups) == (1.0, SAME_ANSWERS, 2)
    assert math.isnan(same.lo)
    assert math.isnan(same.hi)


def test_other_gans_of_the_same_name_are_not_paired() -> None:
    from roadworthy.protocols.ood.tables import _shown_as

    other = StoredCase("m", drawn(0, 0.5).stimulus, {**drawn(0, 0.5).labels, "artifact": "another"})
    assert _shown_as([drawn(0, 0.5)]) == _shown_as([drawn(0, 0.9)])
    assert _shown_as([drawn(0, 0.5)]) != _shown_as([other])


def test_further_units_is_the_smallest_number_that_settles_it() -> None:
    within = Estimate(0.95, 0.94, 0.96, n=200, groups=120)
    further = int(further_units([0.94, 0.96], within, 0.9))
    bounds = [nested_estimate([0.94, 0.96] * (1 + n // 2), within, "GANs").lo for n in (further - 2, further)]
    assert bounds[0] < 0.9 <= bounds[1]
