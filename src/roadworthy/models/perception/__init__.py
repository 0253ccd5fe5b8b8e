"""Perception networks: they say what is in an image, or where; backbones, heads and the places of their dropout."""

from roadworthy.models.perception.backbones import BACKBONES, Backbone
from roadworthy.models.perception.network import perception_network
from roadworthy.models.perception.placements import PLACEMENTS, active_layers

__all__ = ["BACKBONES", "PLACEMENTS", "Backbone", "active_layers", "perception_network"]
