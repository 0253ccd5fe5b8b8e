"""Components for Roadworthy, one file each: protocol, shift, metric, monitor, outliers, model, data, annotations."""
