"""Density models: they say how likely an image is, as a whole.

The modules import torch at once: for use by what imports them when they are needed.
"""
