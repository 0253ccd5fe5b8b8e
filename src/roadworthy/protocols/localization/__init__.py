"""Classification and localization under distribution shift, with the quality of the uncertainty.

Diet, Kassem Sbeyti, Karg: Prediction accuracy and reliability: classification and object localization under
distribution shift (2023).
"""

from __future__ import annotations

from roadworthy.protocols.localization.plan import Localization

__all__ = ["Localization"]
