"""Tables 3, 5 and 6 of Diet et al. beside those of a run: python examples/ad_cifar_tables.py runs/ad-cifar-small.

Tables 5 and 6 are of the network with the most methods; in the paper that is ConvNeXt-Tiny. Its ECE of boxes is on the
scale of `box_ece_interval`; `box_ece` stands below it for bias, with no published figure.

The sets of the run are the published ones where it has them, and drawn stand-ins in `studies/ad-cifar-small.yaml`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

import roadworthy as rw

Published = Mapping[tuple[str, str], Sequence[float | None]]
SETS = ("test", "other_camera", "corner_cases", "weather", "light_fog", "light_rain", "heavy_fog", "heavy_rain", "ood")
TITLES = ("ID", "KITTI", "CC", "Weather", "L. fog", "L. rain", "H. fog", "H. rain", "OoD")
RENAMED = {"kitti": "other_camera"}
PAPER_3 = {
    "efficientnet": (0.947, 0.966, 0.156, 0.108, 5.97, 0.845),
    "resnet": (0.936, 0.955, 0.184, 0.139, 6.19, 0.841),
    "convnext": (0.948, 0.951, 0.162, 0.164, 5.51, 0.858),
}
PAPER_5 = {
    ("accuracy", "none"): (0.948, 0.965, 0.895, 0.928, 0.912, 0.850, 0.830, 0.729),
    ("accuracy", "ensemble"): (0.961, 0.971, 0.913, 0.957, 0.918, 0.881, 0.842, 0.775),
    ("accuracy", "full"): (0.954, 0.968, 0.854, 0.936, 0.909, 0.854, 0.816, 0.697),
    ("ece", "none"): (0.011, 0.020, 0.057, 0.010, 0.017, 0.019, 0.033, 0.032),
    ("ece", "ensemble"): (0.011, 0.008, 0.044, 0.008, 0.015, 0.018, 0.024, 0.013),
    ("ece", "full"): (0.008, 0.009, 0.067, 0.015, 0.016, 0.012, 0.035, 0.028),
    ("brier", "none"): (0.082, 0.054, 0.175, 0.110, 0.135, 0.206, 0.246, 0.371),
    ("brier", "ensemble"): (0.062, 0.040, 0.136, 0.065, 0.119, 0.169, 0.217, 0.306),
    ("brier", "full"): (0.072, 0.047, 0.238, 0.094, 0.133, 0.200, 0.256, 0.388),
}
PAPER_6 = {
    ("iou", "none"): (0.858, 0.832, 0.817, 0.815, 0.836, 0.823, 0.784, 0.769, 0.797),
    ("iou", "ensemble"): (0.867, 0.837, 0.826, 0.827, 0.844, 0.826, 0.797, 0.768, 0.807),
    ("iou", "full"): (0.857, 0.832, 0.815, 0.804, 0.834, 0.805, 0.783, 0.739, 0.788),
    ("box_ece_interval", "ensemble"): (0.299, 0.344, 0.271, 0.331, 0.286, 0.280, 0.269, 0.281, 0.267),
    ("box_ece_interval", "full"): (0.171, 0.182, 0.206, 0.187, 0.197, 0.228, 0.242, 0.296, 0.256),
    ("box_ece", "ensemble"): (None,) * 9,
    ("box_ece", "full"): (None,) * 9,
    ("box_nll", "ensemble"): (12.6, 33.9, 14.6, 13.3, 11.4, 10.9, 10.6, 11.1, 9.3),
    ("box_nll", "full"): (5.9, 6.4, 9.0, 7.7, 7.2, 10.7, 10.5, 22.4, 9.2),
}


def beside(value: float, published: float | None) -> str:
    """A value and the published one in brackets, where there is one; a dash where the run has none."""
    ours = "–" if math.isnan(value) else f"{value:.3f}"
    return ours if published is None or math.isnan(published) else f"{ours} ({published:g})"


def figure(table: pd.DataFrame, **where: str) -> float:
    """The one value of the table with these columns; NaN where the run has none."""
    chosen = table
    for column, wanted in where.items():
        chosen = chosen[chosen[column] == wanted]
    return float(chosen["value"].iloc[0]) if len(chosen) else float("nan")


def print_networks(table: pd.DataFrame) -> None:
    """Table 3: the plain networks on ID data, over all classes and over car and pedestrian."""
    print("| | accuracy, 7 | accuracy, 2 | NLL, 7 | NLL, 2 | MAE | IoU |\n|---|---|---|---|---|---|---|")
    views = [("accuracy", "all"), ("accuracy", "two_classes"), ("nll", "all"), ("nll", "two_classes")]
    views += [("mae", "all"), ("iou", "all")]
    plain = table[(table["uncertainty"] == "none") & (table["set"] == "test")]
    for family in plain["family"].unique():
        ours = [figure(plain, family=family, metric=metric, view=view) for metric, view in views]
        published = next((row for name, row in PAPER_3.items() if name in family), (float("nan"),) * 6)
        cells = [beside(value, paper) for value, paper in zip(ours, published, strict=True)]
        print(f"| {family} | {' | '.join(cells)} |")


def print_sets(table: pd.DataFrame, family: str, paper: Published) -> None:
    """Tables 5 and 6: a network, its ensemble and full MC-Dropout on every set."""
    count = len(next(iter(paper.values())))
    print(f"| | {' | '.join(TITLES[:count])} |\n|---|{'---|' * count}")
    own = table[(table["family"] == family) & (table["view"] == "all")]
    for (metric, method), published in paper.items():
        ours = [figure(own, metric=metric, uncertainty=method, set=name) for name in SETS[:count]]
        cells = [beside(value, known) for value, known in zip(ours, published, strict=True)]
        print(f"| {metric}, {method} | {' | '.join(cells)} |")


def main() -> None:
    """Print the tables of a run, the published figure behind each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    table = rw.open_run(parser.parse_args().run).tables["localization"].replace({"set": RENAMED})
    family = table.groupby("family", sort=False)["uncertainty"].nunique().idxmax()
    for title, show in (
        ("Table 3", lambda: print_networks(table)),
        ("Table 5", lambda: print_sets(table, family, PAPER_5)),
        ("Table 6", lambda: print_sets(table, family, PAPER_6)),
    ):
        print(f"\n{title}: ours (published)\n")
        show()


if __name__ == "__main__":
    main()
