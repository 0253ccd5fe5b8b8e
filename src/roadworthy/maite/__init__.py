"""MAITE."""
