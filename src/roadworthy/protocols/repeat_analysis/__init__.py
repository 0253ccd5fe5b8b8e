"""Analyses over the repeats of a run, for every protocol whose conditions are repeated: which differences are real?"""
