"""Indicators: the approved bounds of a run as what to count in service, and when to raise an alarm."""

from roadworthy.indicators.collecting import Indicators, collect_indicators
from roadworthy.indicators.indicator import Indicator
from roadworthy.indicators.writing import write_indicators

__all__ = ["Indicator", "Indicators", "collect_indicators", "write_indicators"]
