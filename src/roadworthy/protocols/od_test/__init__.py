"""OD-test: how well a monitor rejects outliers of a kind that it was not calibrated with.

Shafaei, Schmidt, Little: Does Your Model Know the Digit 6 Is Not a Cat? (2018).
"""

from __future__ import annotations

from roadworthy.protocols.od_test.plan import OdTest

__all__ = ["OdTest"]
