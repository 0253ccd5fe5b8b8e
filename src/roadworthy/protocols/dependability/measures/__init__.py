"""The eight measures of Cheng et al. (RICC), one file each with its formula, and what extends them."""

from __future__ import annotations

from roadworthy.protocols.dependability.measures.adversarial_confidence_loss import AdversarialConfidenceLoss
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results, Search
from roadworthy.protocols.dependability.measures.cell_results import CellResults
from roadworthy.protocols.dependability.measures.field_performance import FieldPerformance
from roadworthy.protocols.dependability.measures.heat_map_tables import HeatMapTables
from roadworthy.protocols.dependability.measures.interpretation_controls import (
    InterpretationChance,
    InterpretationMasked,
    InterpretationPlace,
)
from roadworthy.protocols.dependability.measures.interpretation_precision import InterpretationPrecision
from roadworthy.protocols.dependability.measures.neuron_activation_pattern import NeuronActivationPattern
from roadworthy.protocols.dependability.measures.neuron_k_activation import NeuronKActivation
from roadworthy.protocols.dependability.measures.object_parts import ObjectParts
from roadworthy.protocols.dependability.measures.occlusion_sensitivity_covering import OcclusionSensitivityCovering
from roadworthy.protocols.dependability.measures.scenario_based_degradation import ScenarioBasedDegradation
from roadworthy.protocols.dependability.measures.scenario_coverage import ScenarioCoverage
from roadworthy.protocols.dependability.measures.scenario_proposals import ScenarioProposals
from roadworthy.protocols.dependability.measures.time_between_failures import TimeBetweenFailures
from roadworthy.protocols.dependability.measures.weighted_confusion import WeightedConfusion
from roadworthy.protocols.dependability.measures.worst_slices import WorstSlices

STEPS: tuple[Measure | Search, ...] = (
    ScenarioCoverage(),
    CellResults(),
    ScenarioProposals(),
    NeuronKActivation(),
    NeuronActivationPattern(),
    AdversarialConfidenceLoss(),
    ScenarioBasedDegradation(),
    WorstSlices(),
    TimeBetweenFailures(),
    FieldPerformance(),
    InterpretationPrecision(),
    InterpretationChance(),
    InterpretationMasked(),
    InterpretationPlace(),
    OcclusionSensitivityCovering(),
    HeatMapTables(),
    ObjectParts(),
    WeightedConfusion(),
)
"""All of them, in the order of the paper, each followed by what extends it: so figures and tables are listed."""
MEASURES = tuple(step for step in STEPS if isinstance(step, Measure))
SEARCHES = tuple(step for step in STEPS if isinstance(step, Search))

__all__ = ["MEASURES", "SEARCHES", "STEPS", "BeforeRun", "Results"]
