"""Roadworthy."""
