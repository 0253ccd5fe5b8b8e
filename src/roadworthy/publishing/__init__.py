"""Publishing: a finished run for the tools that keep experiments, as parameters, metrics, tags and files."""

from roadworthy.publishing.content import Content, content_of
from roadworthy.publishing.mlflow import Published, log_to_mlflow

__all__ = ["Content", "Published", "content_of", "log_to_mlflow"]
