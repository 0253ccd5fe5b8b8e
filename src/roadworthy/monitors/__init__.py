"""Monitors: detectors of images outside the distribution. Importing this package registers all built-in ones."""

from __future__ import annotations

from typing import Any

from roadworthy.monitors.adapters import PytorchOod
from roadworthy.monitors.assertions import Assertion, Frame
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.bin_class import BinClass
from roadworthy.monitors.boxes import Boxes
from roadworthy.monitors.combined import Combined
from roadworthy.monitors.confidence import Energy, KlMatching, MaxLogit, Msp, Random
from roadworthy.monitors.conformance import check_monitor, check_usefulness
from roadworthy.monitors.deep_ensemble import DeepEnsemble
from roadworthy.monitors.doctor import Doctor
from roadworthy.monitors.features import Mahalanobis, React, Vim
from roadworthy.monitors.fitted import CalibratedMonitor, FittedMonitor, load_monitor, represent_data
from roadworthy.monitors.grid import GridMonitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.latent import BnnSvm, MnnSvm, VnnSvm
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.logistic_svm import LogisticSvm
from roadworthy.monitors.mahalanobis_full import MahalanobisFull
from roadworthy.monitors.mc_dropout import McDropoutEntropy
from roadworthy.monitors.neighbours import DeepKnn, KnnSvm, Neighbours
from roadworthy.monitors.odin import Odin, OdinId
from roadworthy.monitors.opening import MonitorOpening, NamesFiles, open_monitor
from roadworthy.monitors.openmax import OpenMax
from roadworthy.monitors.patterns import ActivationPatterns, PatternSet
from roadworthy.monitors.pixelcnn import PixelCnnPlusPlus
from roadworthy.monitors.post_hoc import (
    Ash,
    Dice,
    Entropy,
    Fdbd,
    Gen,
    GradNorm,
    Margin,
    Neco,
    NnGuide,
    RelativeMahalanobis,
    Residual,
    Scale,
    She,
    TemperatureMsp,
)
from roadworthy.monitors.rankfeat import RankFeat
from roadworthy.monitors.reconstruction import AeThreshold, best_interval
from roadworthy.monitors.robustness_radius import RobustnessRadius
from roadworthy.monitors.svm import ScoreSvm, SvmMonitor
from roadworthy.monitors.third_party import CallableMonitor, OnnxMonitor, StoredMonitor
from roadworthy.monitors.threshold import (
    Aim,
    RejectedShare,
    TiesWarning,
    best_threshold,
    fit_svm,
    hinge_threshold,
    share_threshold,
)

__all__ = [
    "MONITORS",
    "ActivationPatterns",
    "AeThreshold",
    "Aim",
    "Ash",
    "Assertion",
    "BinClass",
    "BnnSvm",
    "Boxes",
    "CalibratedMonitor",
    "CallableMonitor",
    "Combined",
    "DeepEnsemble",
    "DeepKnn",
    "Dice",
    "Doctor",
    "Energy",
    "Entropy",
    "Fdbd",
    "FittedMonitor",
    "Frame",
    "Gen",
    "GradNorm",
    "GridMonitor",
    "KlMatching",
    "KnnSvm",
    "Learned",
    "LogisticSvm",
    "Mahalanobis",
    "MahalanobisFull",
    "Margin",
    "MaxLogit",
    "McDropoutEntropy",
    "MnnSvm",
    "Monitor",
    "MonitorOpening",
    "Msp",
    "NamesFiles",
    "Neco",
    "Neighbours",
    "NnGuide",
    "Odin",
    "OdinId",
    "OnnxMonitor",
    "OpenMax",
    "PatternSet",
    "PixelCnnPlusPlus",
    "PytorchOod",
    "Random",
    "RankFeat",
    "React",
    "RejectedShare",
    "RelativeMahalanobis",
    "Residual",
    "RobustnessRadius",
    "Scale",
    "ScoreSvm",
    "She",
    "StoredMonitor",
    "SvmMonitor",
    "TemperatureMsp",
    "TiesWarning",
    "Vim",
    "VnnSvm",
    "best_interval",
    "best_threshold",
    "check_monitor",
    "check_usefulness",
    "fit_svm",
    "hinge_threshold",
    "load_monitor",
    "make_monitor",
    "open_monitor",
    "represent_data",
    "share_threshold",
]


def make_monitor(name: str, **parameters: Any) -> Monitor:
    """The monitor of that name, with the settings given and the others at their default.

    >>> make_monitor("knn_svm", k=4)
    KnnSvm(k=4)
    """
    return MONITORS.get(name).of(parameters)
