"""Curation: crops with one main object each, cut from annotated frames by one documented procedure."""
