"""Thresholds from in-distribution scores: the rules, the promise under draws from a known pool, and its measurement."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binomtest

from roadworthy.core.errors import InputError
from roadworthy.monitors.id_threshold import (
    IdRule,
    IdThreshold,
    class_promises,
    conformal_rank,
    id_threshold,
    needed_objects,
    promise_kept,
    random_frames,
)
from roadworthy.statistics import wilson

GOLDEN = Path(__file__).parent / "golden" / "run" / "readouts" / "classification"
ALPHA, CONFIDENCE, DRAWS = 0.1, 0.9, 1000
CONFORMAL = IdRule("conformal", rejected=ALPHA, confidence=CONFIDENCE)


def golden_confidences() -> np.ndarray:
    """The highest probability of each undisturbed image in the stored golden run: real scores, some of them tied."""
    (part,) = GOLDEN.glob("none-0-r0-*/part-*.parquet")
    return np.stack(pd.read_parquet(part)["probabilities"]).max(axis=1).astype(np.float64)


def film(rng: np.random.Generator, objects: int, decimals: int = 6) -> list[np.ndarray]:
    """Scores of objects filmed in 1 to 30 frames, which resemble each other: most of the spread is between objects."""
    frames = rng.integers(1, 31, objects)
    return [np.round(rng.normal(rng.normal(), 0.2, count), decimals) for count in frames]


def count_broken(pool: list[np.ndarray], objects: int, *, draws: int = DRAWS, by_frame: bool = False) -> int:
    """In how many of the draws a random frame of a random object of the pool is rejected with a chance above alpha.

    Calibration sets are drawn with replacement, so the pool is the distribution and its rate is the true one.
    """
    rng, broken = np.random.Generator(np.random.Philox(7)), 0
    sizes = np.array([len(frames) for frames in pool])
    frames, weights = np.concatenate(pool), np.repeat(1 / sizes / len(pool), sizes)
    for draw in range(draws):
        chosen = rng.integers(len(pool), size=objects)
        scores = np.concatenate([pool[index] for index in chosen])
        groups = np.arange(len(scores)) if by_frame else np.repeat(np.arange(objects), sizes[chosen])
        threshold = id_threshold(scores, groups, CONFORMAL, seed=draw)
        broken += weights @ threshold.reject(frames) > ALPHA
    return broken


def holds(broken: int, draws: int = DRAWS) -> bool:
    """Whether so many broken promises fit a chance of at most 1 - confidence, by a binomial test at 1 %."""
    return binomtest(broken, draws, 1 - CONFIDENCE, alternative="greater").pvalue > 0.01


def test_the_rank_is_the_largest_whose_beta_quantile_is_at_most_alpha() -> None:
    for objects in (1, 21, 22, 23, 37, 38, 60, 200):
        for alpha, confidence in ((0.1, 0.9), (0.05, 0.95), (0.3, 0.5)):
            quantiles = beta.ppf(confidence, np.arange(1, objects + 1), objects - np.arange(objects))
            assert conformal_rank(objects, alpha, confidence) == (quantiles <= alpha).sum()


@pytest.mark.parametrize(("alpha", "confidence"), [(0.05, 0.95), (0.1, 0.9), (0.01, 0.99), (0.5, 0.5), (0.9, 0.1)])
def test_as_many_objects_are_needed_as_give_a_rank(alpha: float, confidence: float) -> None:
    objects = needed_objects(alpha, confidence)
    assert conformal_rank(objects, alpha, confidence) >= 1
    assert objects == 1 or conformal_rank(objects - 1, alpha, confidence) == 0


def test_the_promise_holds_on_real_scores_drawn_with_replacement() -> None:
    pool = golden_confidences()
    assert len(pool) >= 40
    assert holds(count_broken([np.array([score]) for score in pool], objects=60))


def test_the_promise_is_as_sharp_as_its_law_where_scores_do_not_tie() -> None:
    rng, objects = np.random.Generator(np.random.Philox(3)), 60
    rank = conformal_rank(objects, ALPHA, CONFIDENCE)
    rows = rng.random((DRAWS, objects))
    cuts = [id_threshold(row, np.arange(objects), CONFORMAL).threshold for row in rows]
    chance = beta.sf(ALPHA, rank, objects + 1 - rank)
    assert binomtest(int((np.array(cuts) > ALPHA).sum()), DRAWS, chance).pvalue > 0.01
    assert chance <= 1 - CONFIDENCE < beta.sf(ALPHA, rank + 1, objects - rank)


def test_the_promise_holds_for_filmed_objects_and_not_where_frames_count_as_objects() -> None:
    pool = film(np.random.Generator(np.random.Philox(5)), 200)
    assert holds(count_broken(pool, objects=50))
    assert not holds(count_broken(pool, objects=50, draws=100, by_frame=True), draws=100)


def test_the_threshold_is_the_score_of_that_rank_among_one_frame_per_object() -> None:
    pool = film(np.random.Generator(np.random.Philox(2)), 80)
    scores, groups = np.concatenate(pool), np.repeat(np.arange(80), [len(frames) for frames in pool])
    threshold = id_threshold(scores, groups, CONFORMAL, seed=3)
    assert threshold.rank == conformal_rank(80, ALPHA, CONFIDENCE) == 5
    assert threshold.threshold == np.sort(scores[random_frames(groups, seed=3)])[4]
    assert (threshold.images, threshold.objects) == (len(scores), 80)


def test_ties_only_make_the_promise_safer() -> None:
    pool = film(np.random.Generator(np.random.Philox(6)), 200, decimals=0)
    assert holds(count_broken(pool, objects=40))


def test_too_few_objects_reject_nothing_and_say_how_many_are_needed() -> None:
    threshold = id_threshold([3.0, 1.0, 2.0], ["a", "a", "b"], IdRule("conformal"))
    assert (threshold.threshold, threshold.rank, threshold.objects) == (-math.inf, None, 2)
    assert "needs 59 objects, not 2" in threshold.reason
    assert threshold.reason in threshold.sentence()
    assert not threshold.reject([-1e300, -math.inf]).any()
    assert promise_kept(threshold, [1.0], ["c"]).word == "none"


def test_one_frame_is_drawn_of_each_object_by_seed_and_name() -> None:
    groups = np.repeat(["x", "y", "z"], [1, 40, 5])
    rows = random_frames(groups, seed=4)
    assert groups[rows].tolist() == ["x", "y", "z"]
    assert (random_frames(groups, seed=4) == rows).all()
    assert len({tuple(random_frames(groups, seed=seed)) for seed in range(20)}) > 10
    others = np.repeat(["y", "z"], [40, 5])
    assert others[random_frames(others, seed=4)].tolist() == ["y", "z"]
    assert (random_frames(others, seed=4) + 1 == rows[1:]).all(), "another object must not change the draw"
    chosen = np.bincount([random_frames(["a"] * 5, seed=seed)[0] for seed in range(500)], minlength=5)
    assert chosen.min() > 60


def test_the_smallest_score_is_rounded_up_and_rejected_too() -> None:
    """Odin's thresholds in the report have four decimals; an image exactly on one is rejected."""
    threshold = id_threshold([0.02361, 0.3, 0.9], list("abc"), IdRule("smallest"))
    assert threshold.reject([0.0236, 0.02361, 0.0237, np.nextafter(0.0237, 1), 0.0238]).tolist() == [1, 1, 1, 0, 0]
    assert id_threshold([0.0237, 0.5], list("ab"), IdRule("smallest")).threshold == np.nextafter(0.0237, 1)
    assert id_threshold([-1.23456], ["a"], IdRule("smallest")).reject([-1.2345, -1.2344]).tolist() == [True, False]
    assert id_threshold([3e18], ["a"], IdRule("smallest")).reject([3e18]).all()
    infinite = id_threshold([-math.inf, 1.0], list("ab"), IdRule("smallest"))
    assert infinite.reject([-math.inf, -1e300]).tolist() == [True, False]


def test_a_share_is_that_of_images_and_says_what_prevents_it() -> None:
    scores = np.arange(40.0)
    assert id_threshold(scores, np.zeros(40), IdRule(rejected=0.1)).threshold == 4.0
    tied = id_threshold(np.r_[0.0, np.ones(39)], np.arange(40), IdRule(rejected=0.1))
    assert tied.achieved == 1 / 40
    assert tied.reason.endswith("2.5 % are rejected and not 10 %")
    few = id_threshold([2.0, 3.0], list("ab"), IdRule())
    assert (few.threshold, few.reason) == (2.0, "a share of 5 % needs 20 images, not 2: none of them is rejected")
    assert id_threshold([2.0, 3.0], list("ab"), IdRule(rejected=0)).reason == ""


def test_a_monitors_own_threshold_is_taken_as_it_is() -> None:
    threshold = id_threshold([-1.0, -5.0, -2.0, -9.0], list("abcd"), IdRule("own"), own=-2.0)
    assert (threshold.threshold, threshold.achieved) == (-2.0, 0.5)
    with pytest.raises(InputError, match="no threshold of its own: use rule share"):
        id_threshold([1.0], ["a"], IdRule("own"))


def test_each_predicted_class_has_its_own_threshold() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 7], [200, 300, 10])
    scores = rng.random(510) + 10.0 * labels
    threshold = id_threshold(scores, np.arange(510), IdRule("conformal", per_class=True), predictions=labels)
    alone = id_threshold(scores[:200], np.arange(200), IdRule("conformal"))
    assert threshold.classes[0] == alone
    assert (
        threshold.by_class[7]
        == threshold.threshold
        == id_threshold(scores, np.arange(510), IdRule("conformal")).threshold
    )
    assert threshold.reason == "class 7 has too few objects and the threshold of all classes together"
    assert "needs 59 objects, not 10: the class has" in threshold.classes[7].reason
    assert [part.promised for part in threshold.classes.values()] == [True, True, False]
    low = np.array([threshold.by_class[0], threshold.by_class[0], threshold.threshold])
    assert threshold.reject(low - 1e-9, np.array([0, 1, 99])).all()
    assert threshold.reject(low, np.array([0, 1, 99])).tolist() == [False, True, False]
    words = {label: p.word for label, p in class_promises(threshold, scores, np.arange(510), labels).items()}
    assert words == {0: "kept", 1: "kept", 7: "none"}
    assert promise_kept(threshold, scores, np.arange(510), predictions=labels).word == "none"


def test_a_threshold_per_class_where_all_objects_are_too_few_says_so() -> None:
    threshold = id_threshold([1.0, 2.0], list("ab"), IdRule("conformal", per_class=True), predictions=[0, 1])
    assert threshold.by_class == {0: -math.inf, 1: -math.inf}
    assert threshold.reason.startswith("classes 0, 1 have too few objects")
    assert "needs 59 objects, not 2" in threshold.reason


def test_the_promise_per_class_holds_on_draws_from_a_pool() -> None:
    """The chance to reject a random frame, given the predicted class, for each class by itself."""
    rng = np.random.Generator(np.random.Philox(9))
    pool, draws, rule = rng.random(2000), 200, IdRule("conformal", rejected=0.1, confidence=0.9, per_class=True)
    labels, broken = (rng.random(2000) < 0.3).astype(np.int64), np.zeros(2)
    pool = pool ** (1 + 3 * labels)
    for _ in range(draws):
        rows = rng.integers(2000, size=150)
        threshold = id_threshold(pool[rows], np.arange(150), rule, predictions=labels[rows])
        rejected = threshold.reject(pool, labels)
        broken += [rejected[labels == label].mean() > 0.1 for label in (0, 1)]
    assert all(binomtest(int(count), draws, 0.1, alternative="greater").pvalue > 0.01 for count in broken)


def test_the_measured_rate_of_a_promise_counts_objects() -> None:
    """One object of 90 rejected frames among 100 objects is a rate of 1 %, whatever the number of frames."""
    threshold = id_threshold(np.arange(100.0), np.arange(100), IdRule("conformal"))
    scores, groups = np.r_[np.full(90, -1.0), np.full(99, 50.0)], np.r_[np.zeros(90), np.arange(1, 100)]
    promise = promise_kept(threshold, scores, groups)
    assert (promise.measured.value, promise.measured.n, promise.measured.groups) == (0.01, 189, 100)
    assert (promise.measured.lo, promise.measured.hi) == wilson(1, 100)
    assert (promise.word, promise.alpha, round(promise.delta, 9)) == ("kept", 0.05, 0.05)
    share = id_threshold(np.arange(100.0), np.arange(100), IdRule())
    assert promise_kept(share, scores, groups).measured.value == 90 / 189
    assert promise_kept(share, scores, groups).word == "none"


def test_a_promise_is_broken_only_where_the_bound_says_so_and_proven_likewise() -> None:
    threshold = id_threshold(np.arange(100.0), np.arange(100), IdRule("conformal"))
    for rejected, word, is_proven in ((0, "kept", True), (8, "kept", False), (13, "broken", False)):
        promise = promise_kept(threshold, np.r_[np.zeros(rejected), np.full(100 - rejected, 9.0)], np.arange(100))
        assert (promise.word, promise.proven) == (word, is_proven), promise.sentence()
    assert "contradicts" in promise.sentence()
    assert promise_kept(threshold, [], []).sentence() == "nothing was measured: no images"


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=80), st.floats(0.01, 0.9), st.sampled_from(["share", "conformal"])
)
@settings(max_examples=60, deadline=None)
def test_a_threshold_never_rejects_more_than_asked_and_only_the_order_of_scores_counts(
    values: list[int], rejected: float, rule: str
) -> None:
    scores, groups = np.array(values, np.float64), np.arange(len(values))
    threshold = id_threshold(scores, groups, IdRule(rule, rejected=rejected))
    assert threshold.achieved <= rejected + 1e-9
    stretched = id_threshold(np.exp(scores), groups, IdRule(rule, rejected=rejected))
    assert (stretched.reject(np.exp(scores)) == threshold.reject(scores)).all()
    assert IdThreshold.of_record(threshold.record()) == threshold


def test_a_record_holds_thresholds_per_class_and_infinite_ones() -> None:
    rule = IdRule("conformal", per_class=True)
    scores = np.r_[np.arange(100.0), 5.0]
    threshold = id_threshold(scores, np.arange(101), rule, predictions=np.r_[np.zeros(100, np.int64), 1])
    assert IdThreshold.of_record(threshold.record()) == threshold
    never = id_threshold([1.0], ["a"], IdRule("conformal"))
    assert never.record()["threshold"] == "-inf"
    assert IdThreshold.of_record(never.record()) == never


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"rule": "shares"}, "did you mean 'share'"),
        ({"rejcted": 0.1}, "did you mean 'rejected'"),
        ({"rejected": "few"}, "rejected cannot be 'few'"),
        ({"rejected": 1.0}, "from 0 to below 1"),
        ({"rule": "conformal", "rejected": 0}, "give `rejected` above 0"),
        ({"rule": "conformal", "confidence": 1.0}, "between 0 and 1"),
        ({"rule": "smallest", "rejected": 0.1}, "does not use `rejected`"),
        ({"rule": "share", "confidence": 0.9}, "does not use `confidence`"),
        ({"rule": "own", "per_class": True}, "one threshold for all classes"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        IdRule.of(rule)


def test_rows_that_make_no_sense_are_refused() -> None:
    threshold = id_threshold([1.0], ["a"], IdRule("smallest"))
    with pytest.raises(InputError, match="1 of 2 scores are NaN"):
        threshold.reject([math.nan, 1.0])
    with pytest.raises(InputError, match="scores are NaN"):
        id_threshold([math.nan], ["a"], IdRule())
    with pytest.raises(InputError, match="give at least one"):
        id_threshold([], [], IdRule())
    with pytest.raises(InputError, match="an object for each of 2 scores"):
        id_threshold([1.0, 2.0], ["a"], IdRule())
    with pytest.raises(InputError, match="give `predictions`"):
        id_threshold([1.0], ["a"], IdRule(per_class=True))
    with pytest.raises(InputError, match="a class index for each of 1 images"):
        id_threshold([1.0], ["a"], IdRule(per_class=True), predictions=[0.5])
