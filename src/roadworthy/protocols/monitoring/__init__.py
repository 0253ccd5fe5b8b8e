"""The benchmark of runtime monitors: what a monitor beside a model is worth, by the method FARM.

Ferreira et al.: SAS deliverable D1.1, report on first version of a benchmark for safety monitoring (2020).
"""

from __future__ import annotations

from roadworthy.protocols.monitoring.plan import Monitoring

__all__ = ["Monitoring"]
