"""OD-test: how well a monitor rejects outliers of a kind that it was not calibrated with."""
