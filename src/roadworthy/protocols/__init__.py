"""Protocols: the test procedures. Each says which stimuli it shows, which cases it runs and which tables it makes."""
