"""The example that prints a run as the thesis does, on the thesis's own means and deviations; deviations both ways."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from designs import ACCURACY, ACCURACY_DEVIATION, thesis_accuracy
from roadworthy.core.types import Stimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.classification.tables import Evidence
from roadworthy.protocols.repeat_analysis.analysis import analyse

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("thesis_tables")


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """Repeats with the means of table 13 and the deviations of table 14; undisturbed data; sets of outliers."""
    names = {"classifier": "model", "transformation": "shift", "y": "value"}
    disturbed = thesis_accuracy().rename(columns=names)
    shape = np.array([-1.0, 1.0] * 10) / math.sqrt(20 / 19)
    clean = [
        {"model": model, "shift": "none", "level": 0, "repeat": repeat, "value": mean + sd * shape[repeat]}
        for model, mean, sd in (("Baseline", 0.9899, 0.0030), ("MC Dropout", 0.9866, 0.0019))
        for repeat in range(20)
    ]
    repeats = pd.concat([disturbed, pd.DataFrame(clean)], ignore_index=True)
    repeats = pd.concat([repeats.assign(metric=metric) for metric in ("accuracy", "auroc", "brier_mean")])
    sets = [("swirl", "derived", 0.8283, "none", 0), ("fog-5", "transformed", 0.4825, "fog", 5)]
    sets += [("tiny", "literature", 0.9490, "none", 0), ("lee_gan", "gan", 0.8579, "none", 0)]
    ood = [
        {"model": model, "ood_set": name, "kind": kind, "shift": shift, "level": level, "foreign": "tiny"}
        | {"repeat": repeat, "metric": "auroc", "value": value + 0.01 * shape[repeat]}
        for model in ("Baseline", "MC Dropout")
        for name, kind, value, shift, level in sets
        for repeat in range(20)
    ]
    drawn = [
        {"model": model, "ood_set": "lee_gan", "gan": gan, "hardest": gan == 1, "repeat": repeat, "metric": "auroc"}
        | {"value": value + 0.01 * shape[repeat]}
        for model in ("Baseline", "MC Dropout")
        for gan, value in enumerate((0.9, 0.8))
        for repeat in range(20)
    ]
    stored = {
        "classification_repeats": repeats,
        "ood_repeats": pd.DataFrame(ood),
        "gan_repeats": pd.DataFrame(drawn),
    }
    return stored | analyse(stored, ["classification", "ood"])


def rows_of(text: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {line[0]: line[1:] for line in lines}


def test_tables_13_and_14_are_those_of_the_thesis(example: ModuleType, tables: dict[str, pd.DataFrame]) -> None:
    printed = dict(example.sections(tables))
    for title, source in (
        ("Table 13: accuracy", ACCURACY),
        ("Table 14: standard deviations of table 13", ACCURACY_DEVIATION),
    ):
        noise = [float(cell) for cell in rows_of(printed[title])["Noise"]]
        assert noise == pytest.approx([float(value) for value in source.split()[:10]], abs=1e-9)
        assert len(rows_of(printed[title])) == 2 + 10
    assert {"Table 15: auroc", "Table 16: standard deviations of table 15", "Table 17: brier_mean"} <= set(printed)
    assert "Table 18: standard deviations of table 17" in printed


def test_table_1_and_figure_9_have_the_deviation_of_the_thesis_and_that_over_repeats(
    example: ModuleType, tables: dict[str, pd.DataFrame]
) -> None:
    """.9132 (.1108) and .9302 (.0978) in the thesis; here all cells of a repeat move together, by their deviations."""
    table = example.summary(tables["classification_repeats"]).loc["accuracy"].set_index(["data", "model"])
    over_all = table.loc["all shifts and levels"]
    assert over_all["mean"].round(4).to_dict() == {"Baseline": 0.9132, "MC Dropout": 0.9302}
    assert over_all["sd over conditions"].round(4).to_dict() == pytest.approx(
        {"Baseline": 0.1108, "MC Dropout": 0.0978}, abs=1.01e-4
    )
    deviations = np.array(ACCURACY_DEVIATION.split(), float).reshape(10, 2, 5).mean(axis=(0, 2))
    assert over_all["sd over repeats"].tolist() == pytest.approx(deviations.tolist(), rel=1e-9)
    clean = table.loc["undisturbed"]
    assert clean["sd over repeats"].round(4).to_dict() == {"Baseline": 0.0030, "MC Dropout": 0.0019}
    assert clean["sd over conditions"].isna().all(), "one condition"
    figure = dict(example.sections(tables))["Figure 9: mean, and one standard deviation as in the thesis"]
    bars = [line for line in figure.splitlines() if "Baseline" in line][:2]
    assert "undisturbed" in bars[0]
    assert bars[0].count("#") == 40
    assert bars[1].count("#") == round(40 * 0.9132 / 0.9899)
    assert bars[1].endswith("0.9132 (sd 0.1108)") or bars[1].endswith("0.9132 (sd 0.1109)")


def test_analyses_are_printed_as_in_the_thesis(example: ModuleType, tables: dict[str, pd.DataFrame]) -> None:
    printed = dict(example.sections(tables))
    table_2 = rows_of(printed["Table 2: accuracy"])
    assert table_2["Factor"] == ["d.f.", "F", "p", "p, by repeat", "p, robust"]
    assert {name: row[0] for name, row in table_2.items() if name in ("model", "shift*level", "Error")} == {
        "model": "1",
        "shift*level": "36",
        "Error": "1936",
    }
    assert float(table_2["model"][1]) == pytest.approx(144.83, rel=0.02)
    assert table_2["model"][2] == "<.001"
    assert "Total" not in table_2
    for title in ("Table 3: auroc", "Table 4: brier_mean", "Table 6, plain sets of outliers: auroc"):
        assert title in printed
    assert rows_of(printed["Table 8, a shift on both sides: auroc"])["shift"][0] == "1"
    hardest = next(title for title in printed if title.startswith("Table 11"))
    assert rows_of(printed[hardest])["model"][0] == "1"
    assert rows_of(printed["Section 4.1, undisturbed against disturbed: accuracy"])["transformed"][0] == "1"


def test_gans_are_printed_on_average_and_the_hardest(example: ModuleType, tables: dict[str, pd.DataFrame]) -> None:
    printed = dict(example.sections(tables))
    average = rows_of(printed["Table 9: AUROC of GANs, the average of each configuration"])["lee_gan"]
    hardest = next(text for title, text in printed.items() if title.startswith("Table 10"))
    assert average[0].startswith("0.8500 (0.05")
    assert rows_of(hardest)["lee_gan"] == ["0.8000 (0.0100)"] * 2
    without = {name: table for name, table in tables.items() if not name.startswith(("gan", "anova", "posthoc"))}
    assert not any("GAN" in title or "Table 2" in title for title, _ in example.sections(without))


# The same deviations in the tables of a run


def answered(right: int, shift: str, level: int, repeat: int, images: int = 60) -> StoredCase:
    ids = tuple(f"i{row}" for row in range(images))
    probabilities = np.array([[0.9, 0.1]] * right + [[0.2, 0.8]] * (images - right))
    readouts = Readouts(ids, ids, Answers.from_probabilities(probabilities, [0] * images), None)
    return StoredCase("m", Stimulus("d", shift, level, repeat=repeat), {}, load=lambda: readouts)


def test_averages_have_their_deviations_both_ways() -> None:
    right = {("fog", 1): (54, 48), ("fog", 2): (42, 30), ("rain", 1): (60, 60)}
    cases = [answered(60, "none", 0, 0)]
    cases += [answered(n, *key, repeat) for key, own in right.items() for repeat, n in enumerate(own)]
    tables = Evidence(cases, ["a", "b"]).tables()
    overall = tables["classification_overall"].set_index("metric").loc["accuracy"]
    values = np.array([*right.values()]) / 60
    assert overall["value"] == pytest.approx(values.mean())
    assert overall["sd_conditions"] == pytest.approx(values.std(ddof=1))
    assert overall["sd_repeats"] == pytest.approx(values.mean(axis=0).std(ddof=1))
    fog = tables["classification_by_shift"].query("shift == 'fog' and metric == 'accuracy'").iloc[0]
    assert fog["sd_repeats"] == pytest.approx(values[:2].mean(axis=0).std(ddof=1))
    rain = tables["classification_by_shift"].query("shift == 'rain' and metric == 'accuracy'").iloc[0]
    assert (rain["sd_conditions"], rain["sd_repeats"]) == (0, 0)
    drop = tables["classification_overall"].set_index("metric").loc["accuracy_drop"]
    assert drop[["sd_conditions", "sd_repeats"]].isna().all()
    auroc = tables["classification_overall"].set_index("metric").loc["auroc"]
    assert auroc["sd_repeats"] == pytest.approx(0.0), "rain has no wrong answer, so no AUROC: it is left out"


# Findings


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("thesis_findings")


TABLE_5 = {"uniform": (0.9862, 0.9880), "normal": (0.9846, 0.9906), "tiny": (0.9490, 0.9821), "mixed": (0.8985, 0.9252)}
TABLE_5 |= {"shuffled": (0.9697, 0.9893), "swirl": (0.8283, 0.9359), "colour": (0.8487, 0.8946)}
TABLE_7 = {"noise": (0.8018, 0.9312), "grey": (0.7466, 0.8362), "snow": (0.8243, 0.9443), "rain": (0.7519, 0.8916)}
TABLE_7 |= {"fog": (0.4825, 0.5406), "perspective": (0.6054, 0.7170), "blur": (0.8483, 0.9575)}
TABLE_7 |= {"rotation": (0.8178, 0.9079), "crop": (0.7200, 0.8141), "reflection": (0.6560, 0.7870)}


def test_harder_sets_separate_more_in_the_thesis_and_the_sign_turns_with_them(
    findings: ModuleType, tables: dict[str, pd.DataFrame]
) -> None:
    """The thesis's means: +.62 over its 17 sets (scipy); 10.73 % on average with a shift on both sides, as it says."""
    rows = [
        {"model": model, "ood_set": name, "kind": kind, "repeat": repeat, "metric": "auroc", "value": pair[column]}
        for kind, table in (("literature", TABLE_5), ("transformed", TABLE_7))
        for name, pair in table.items()
        for column, model in enumerate(("baseline", "mc_dropout"))
        for repeat in range(2)
    ]
    ood = pd.DataFrame(rows)
    given = {**tables, "ood_repeats": ood}
    printed = findings.separation(given)
    assert printed.loc["AUROC, all these sets", "rank correlation"] == "+0.62"
    assert printed.loc["AUROC, all these sets", "in each repeat"] == "+0.62, +0.62"
    assert printed.loc["AUROC, plain sets of outliers", "rank correlation"] == "+0.89"
    assert printed.loc["AUROC, a shift on both sides", "rank correlation"] == "-0.26"
    assert printed.loc["AUROC, a shift on both sides", "mean difference"] == "+0.1073"
    turned = ood.assign(model=ood["model"].map({"baseline": "mc_dropout", "mc_dropout": "baseline"}))
    turned = turned.sort_values("model", kind="stable")
    assert findings.separation({**tables, "ood_repeats": turned}).loc["AUROC, all these sets", "rank correlation"] == (
        "-0.62"
    )


def test_interactions_are_those_of_the_analyses(findings: ModuleType, tables: dict[str, pd.DataFrame]) -> None:
    table = findings.interactions(tables).reset_index()
    of_shift = table[(table["metric"] == "accuracy") & (table["interaction"] == "model*shift")].iloc[0]
    assert float(of_shift["F"]) == pytest.approx(27.46, rel=0.02), "table 2 of the thesis"
    assert of_shift["p"] == "<.001"
    assert {"anova_ood_sets", "anova_classification"} <= set(table["table"])


def test_lee_and_sricharan_are_compared_gan_by_gan(findings: ModuleType) -> None:
    values = {("lee_gan", 0): 0.7, ("lee_gan", 1): 0.8, ("sricharan_wgan_2e", 0): 0.2, ("sricharan_wgan_2e", 1): 0.4}
    rows = [
        {"model": model, "ood_set": name, "gan": gan, "repeat": repeat, "metric": "auroc"}
        | {"value": value + (0.1 if repeat else -0.1) + (0.05 if model == "b" else 0)}
        for model in "ab"
        for (name, gan), value in values.items()
        for repeat in range(2)
    ]
    table = findings.lee_against_sricharan(pd.DataFrame(rows))
    assert table.loc["a", "Lee"] == "0.750 (0.700 to 0.800, 2 GANs)"
    assert table.loc["b", "Sricharan"] == "0.350 (0.250 to 0.450, 2 GANs)"
    assert set(table["difference"]) == {"+0.450"}
    assert set(table["p, over GANs"]) == {"0.33"}, "2 of the 6 splits of four GANs: repeats do not raise their number"
