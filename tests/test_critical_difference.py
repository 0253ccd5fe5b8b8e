"""Critical difference: against Demsar's published example, scipy and scikit-posthocs."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from roadworthy.statistics import critical_difference, holm, wilcoxon_p

CLASSIFIERS = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]
AUC = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.97501, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)
"""Table 6 of Demsar (2006), Statistical comparisons of classifiers over multiple data sets, JMLR 7:1-30.

In the set before the last both values are printed as .975 but ranked 2 and 3: the former is larger beyond the third
decimal, for which .97501 stands.
"""


def test_demsars_example() -> None:
    result = critical_difference(AUC, CLASSIFIERS, tie_correction=False)
    assert result.ranks.round(3).tolist() == [3.143, 2.0, 2.893, 1.964]
    assert result.friedman == pytest.approx(9.28, abs=0.005)
    assert result.iman_davenport == pytest.approx(3.69, abs=0.005)
    assert result.distance == pytest.approx(1.25, abs=0.005)
    assert result.distance / math.sqrt(4 * 5 / (6 * 14)) == pytest.approx(2.569, abs=0.0005)
    assert critical_difference(AUC, CLASSIFIERS, alpha=0.10).distance == pytest.approx(1.12, abs=0.005)
    assert (result.sets, result.left_out, result.warning) == (14, (), "")


def test_wilcoxon_of_demsars_example() -> None:
    # C4.5 against C4.5+m, section 3.1.3: R+ = 93, R- = 12 of 14 sets, p < .05.
    p = wilcoxon_p(AUC[:, 1], AUC[:, 0])
    assert p == pytest.approx(0.01, abs=0.005)


def test_friedman_is_scipys_with_and_without_ties() -> None:
    for values in (AUC, np.random.default_rng(0).random((12, 5))):
        result = critical_difference(values, [str(column) for column in range(values.shape[1])])
        reference = stats.friedmanchisquare(*values.T)
        assert (result.friedman, result.friedman_p) == pytest.approx((reference.statistic, reference.pvalue))


def test_iman_davenport_is_the_f_test_of_ranks() -> None:
    values = np.random.default_rng(1).random((9, 4))
    result = critical_difference(values, list("abcd"))
    ranks = stats.rankdata(-values, axis=1)
    between = 9 * ((ranks.mean(axis=0) - 2.5) ** 2).sum() / 3
    residual = ((ranks - ranks.mean(axis=0)) ** 2).sum() / (3 * 8)
    assert result.iman_davenport == pytest.approx(between / residual)
    assert result.iman_davenport_p == pytest.approx(stats.f.sf(between / residual, 3, 24))


def test_nemenyi_is_that_of_scikit_posthocs() -> None:
    posthocs = pytest.importorskip("scikit_posthocs")
    for values in (AUC, np.random.default_rng(2).random((11, 6))):
        names = [str(column) for column in range(values.shape[1])]
        reference = posthocs.posthoc_nemenyi_friedman(values).to_numpy()
        for pair in critical_difference(values, names).pairs:
            assert pair.nemenyi_p == pytest.approx(reference[int(pair.a), int(pair.b)], abs=1e-4)


def test_pairs_name_who_is_better_and_are_corrected_together() -> None:
    result = critical_difference(AUC, CLASSIFIERS)
    assert [(pair.a, pair.b) for pair in result.pairs][:3] == [("C4.5", other) for other in CLASSIFIERS[1:]]
    assert result.pairs[0].rank_difference == pytest.approx(3.142857 - 2)
    raw = [wilcoxon_p(AUC[:, a], AUC[:, b]) for a in range(4) for b in range(a + 1, 4)]
    assert [pair.wilcoxon_p_holm for pair in result.pairs] == pytest.approx(holm(raw).tolist())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_wilcoxon_goes_through_all_signs(differences: list[int]) -> None:
    values = np.array(differences, dtype=float)
    ranks = stats.rankdata(np.abs(values))
    total = abs((np.sign(values) * ranks).sum())
    sums = [abs((np.array(signs) * ranks * (values != 0)).sum()) for signs in product((-1, 1), repeat=len(values))]
    assert wilcoxon_p(values, np.zeros(len(values))) == pytest.approx(np.mean(np.array(sums) >= total - 1e-9))


def test_wilcoxon_is_scipys_without_ties() -> None:
    generator = np.random.default_rng(3)
    for size in (5, 14, 30):
        a, b = generator.random(size), generator.random(size) + 0.1
        assert wilcoxon_p(a, b) == pytest.approx(stats.wilcoxon(a, b, method="exact").pvalue)


def test_wilcoxon_takes_differences_that_differ_by_rounding_for_ties() -> None:
    a, b = np.array([0.9, 0.7, 0.3]), np.array([0.8, 0.6, 0.4])
    assert len(np.unique(np.abs(a - b))) > 1
    assert wilcoxon_p(a, b) == 1.0
    assert wilcoxon_p([0.5, 0.5], [0.5, 0.5]) == 1.0
    assert math.isnan(wilcoxon_p([], []))
    with pytest.raises(ValueError, match="NaN"):
        wilcoxon_p([math.nan], [1.0])


def test_cliques_are_maximal_and_agree_with_letters() -> None:
    # Mean ranks 1, 2, 3, 4, 5 over 12 sets; CD = 2.728 sqrt(30 / 72) = 1.761: neighbours only.
    values = np.tile([5.0, 4.0, 3.0, 2.0, 1.0], (12, 1))
    result = critical_difference(values, list("abcde"))
    assert result.distance == pytest.approx(1.761, abs=0.001)
    assert result.cliques == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    assert result.letters() == {"a": "a", "b": "ab", "c": "bc", "d": "cd", "e": "d"}
    assert math.isinf(result.iman_davenport)
    assert result.iman_davenport_p == 0
    turned = critical_difference(values, list("abcde"), higher_is_better=False)
    assert turned.ranks.tolist() == [5, 4, 3, 2, 1]
    assert turned.cliques[0] == ("e", "d")


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 7), st.integers(2, 15), st.integers(0, 10**6))
def test_cliques_hold_exactly_the_neighbours_within_the_distance(methods: int, sets: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 6, (sets, methods)) + np.arange(methods)
    names = [f"m{index}" for index in range(methods)]
    result = critical_difference(values, names)
    rank = dict(zip(names, result.ranks, strict=True))
    assert sum(result.ranks) == pytest.approx(methods * (methods + 1) / 2)
    for a in range(methods):
        for b in range(a + 1, methods):
            together = any(names[a] in clique and names[b] in clique for clique in result.cliques)
            assert together == (abs(rank[names[a]] - rank[names[b]]) <= result.distance)
            letters = result.letters()
            assert together == bool(set(letters[names[a]]) & set(letters[names[b]]))
    as_sets = [set(clique) for clique in result.cliques]
    assert not any(one < other for one in as_sets for other in as_sets)
    reference = stats.friedmanchisquare(*values.T)
    if not math.isnan(reference.statistic):
        assert result.friedman == pytest.approx(reference.statistic)


def test_a_set_with_a_missing_value_is_left_out_and_said() -> None:
    holes = np.vstack([AUC, [0.5, math.nan, 0.4, 0.3], [math.nan] * 4])
    result, whole = critical_difference(holes, CLASSIFIERS), critical_difference(AUC, CLASSIFIERS)
    assert result.left_out == (14, 15)
    assert result.warning == "2 of 16 sets are left out: a method has no value there."
    assert result.friedman == whole.friedman
    assert result.pairs == whole.pairs


def test_few_sets_and_equal_methods_are_warned_of() -> None:
    result = critical_difference(AUC[:9], CLASSIFIERS)
    assert "With 9 sets (fewer than 10)" in result.warning
    equal = critical_difference(np.ones((10, 3)), ["a", "b", "c"])
    assert (equal.friedman, equal.friedman_p, equal.iman_davenport_p) == (0, 1, 1)
    assert equal.cliques == [("a", "b", "c")]
    assert equal.warning == "The methods do not differ significantly as a whole (Iman and Davenport, alpha 0.05)."


@pytest.mark.parametrize(
    ("values", "ranks", "sentence"),
    [
        (AUC[:, :2], [25 / 14, 17 / 14], "needs 3 methods or more, not 2"),
        (AUC[:, :1], [1.0], "needs 3 methods or more, not 1"),
        (AUC[:1], [4.0, 3.0, 2.0, 1.0], "needs 2 sets or more in which every method has a value, not 1"),
        (np.full((3, 3), math.nan), [math.nan] * 3, "3 of 3 sets are left out"),
        (np.empty((0, 3)), [math.nan] * 3, "not 0"),
    ],
)
def test_too_little_to_test_has_a_reason(values: np.ndarray, ranks: list[float], sentence: str) -> None:
    names = CLASSIFIERS[: values.shape[1]]
    result = critical_difference(values, names)
    assert result.ranks.tolist() == pytest.approx(ranks, nan_ok=True)
    assert sentence in result.warning
    assert math.isnan(result.friedman)
    assert math.isnan(result.distance)
    assert result.cliques == []
    assert result.letters() == dict.fromkeys(names, "")
    assert all(math.isnan(pair.nemenyi_p) for pair in result.pairs)


@pytest.mark.parametrize(
    ("values", "names", "alpha", "sentence"),
    [
        ([[1.0, 2.0]], ["a"], 0.05, "a column per method"),
        ([[1.0, 2.0]], ["a", "a"], 0.05, "different names"),
        ([[1.0, math.inf]], ["a", "b"], 0.05, "finite"),
        ([[1.0, 2.0]], ["a", "b"], 1.0, "alpha"),
    ],
)
def test_bad_tables_are_refused(values: list[list[float]], names: list[str], alpha: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        critical_difference(values, names, alpha=alpha)
