"""Expected situations: what does a classifier come to in the situations that its user expects, by how often they occur?

A situation is undisturbed data, a shift at a level, or a recorded set (problem cases that vehicles reported), each with
the share of driving in which it is expected. From the answers to all of them follow the expected performance, and for
every requirement the share of expected situations in which it is met, missed or undecided.
"""

from __future__ import annotations

from roadworthy.protocols.situations.plan import Situations

__all__ = ["Situations"]
