"""Networks that monitors train for themselves, one kind a file."""
