"""A protocol, a shift, a metric and a monitor for Roadworthy, one file each."""
