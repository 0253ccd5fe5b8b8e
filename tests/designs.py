"""Data of known designs for analyses of variance."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

THESIS = ["classifier", "transformation", "level"]
ACCURACY = """
.9843 .9667 .9509 .9268 .8893 .9850 .9819 .9790 .9754 .9676 .9896 .9888 .9848 .9545 .8228 .9868 .9863 .9854 .9799
.8815 .9895 .9875 .9817 .9696 .9579 .9856 .9844 .9803 .9755 .9717 .9866 .9796 .9641 .9363 .8684 .9855 .9822 .9769
.9643 .9292 .9800 .9592 .8950 .7613 .5652 .9837 .9790 .9645 .9007 .6746 .9737 .9351 .8540 .7212 .6110 .9738 .9406
.8564 .7071 .5804 .9877 .9863 .9833 .9770 .9658 .9859 .9842 .9815 .9773 .9720 .9882 .9842 .9693 .9362 .8924 .9847
.9816 .9734 .9400 .8927 .9883 .9772 .9328 .8594 .7689 .9842 .9779 .9458 .8653 .7553 .9826 .9444 .8493 .7337 .6170
.9814 .9518 .8845 .7929 .6909"""
ACCURACY_DEVIATION = """.0081 .0201 .0309 .0438 .0616 .0021 .0028 .0043 .0061 .0088 .0035 .0040 .0051 .0170 .0306 .0017
.0016 .0015 .0028 .0267 .0023 .0030 .0061 .0126 .0188 .0023 .0022 .0028 .0051 .0082 .0082 .0134 .0251 .0456 .0788 .0027
.0040 .0051 .0104 .0319 .0090 .0209 .0541 .0916 .1284 .0025 .0044 .0119 .0638 .1483 .0056 .0096 .0159 .0226 .0302 .0036
.0077 .0157 .0159 .0238 .0031 .0039 .0058 .0093 .0147 .0019 .0024 .0030 .0045 .0050 .0031 .0061 .0101 .0148 .0161 .0026
.0032 .0052 .0115 .0152 .0019 .0075 .0191 .0272 .0295 .0022 .0024 .0064 .0163 .0174 .0051 .0175 .0286 .0343 .0387 .0045
.0132 .0339 .0465 .0520"""
TRANSFORMATIONS = ["Noise", "Grey", "Snow", "Rain", "Fog", "Perspective", "Blur", "Rotation", "Crop", "Reflection"]


def grid(repeats: int, *sizes: int) -> pd.DataFrame:
    """A row per repeat and combination of the levels of factors a, b, c, ..."""
    names = "abcdef"[: len(sizes)]
    rows = itertools.product(range(repeats), *(range(size) for size in sizes))
    return pd.DataFrame(rows, columns=["repeat", *names])


def samples_with(means: np.ndarray, deviations: np.ndarray, names: list[str], n: int = 20) -> pd.DataFrame:
    """Values with exactly these means and standard deviations: n in each cell, in the order of the arrays."""
    shape = np.linspace(-1, 1, n)
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    cells = list(np.ndindex(means.shape))
    rows = [(*cell, repeat, means[cell] + deviations[cell] * shape[repeat]) for cell in cells for repeat in range(n)]
    return pd.DataFrame(rows, columns=[*names, "repeat", "y"])


def warpbreaks() -> pd.DataFrame:
    """R's data set `warpbreaks` (Tippett 1950)."""
    breaks = """26 30 54 25 70 52 51 26 67 18 21 29 17 12 18 35 30 36 36 21 24 18 10 43 28 15 26
                27 14 29 19 29 31 41 20 44 42 26 19 16 39 28 21 39 29 20 21 24 17 13 15 15 16 28"""
    return pd.DataFrame(
        {"wool": list("A" * 27 + "B" * 27), "tension": list("LLLLLLLLLMMMMMMMMMHHHHHHHHH" * 2), "y": breaks.split()}
    ).astype({"y": float})


def thesis_accuracy() -> pd.DataFrame:
    """2 classifiers x 10 transformations x 5 levels x 20 repeats: means of table 13, deviations of table 14."""
    means, deviations = (
        np.array(text.split(), dtype=float).reshape(10, 2, 5).transpose(1, 0, 2)
        for text in (ACCURACY, ACCURACY_DEVIATION)
    )
    frame = samples_with(means, deviations, THESIS)
    frame["transformation"] = np.array(TRANSFORMATIONS)[frame["transformation"]]
    return frame.assign(classifier=np.array(["Baseline", "MC Dropout"])[frame["classifier"]], level=frame["level"] + 1)
