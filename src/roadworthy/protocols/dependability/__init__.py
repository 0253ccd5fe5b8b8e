"""The eight dependability metrics (RICC): what the data covers, what the network uses, what hurts it, what it costs.

Scenario coverage, neuron k-activation and activation patterns, adversarial confidence loss, scenario-based degradation,
interpretation precision, occlusion sensitivity covering, weighted confusion; each as a row of one table, with what it
rests on in companion tables. Formulas and limits: docs/dependability.md.
"""

from __future__ import annotations

from roadworthy.protocols.dependability.names import NAME
from roadworthy.protocols.dependability.plan import Dependability
from roadworthy.protocols.dependability.settings import Settings
from roadworthy.protocols.dependability.tables import Evidence

__all__ = ["NAME", "Dependability", "Evidence", "Settings"]
