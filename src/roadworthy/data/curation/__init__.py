"""Curation: crops with one main object each, cut from annotated frames by one documented procedure."""

from __future__ import annotations

from roadworthy.data.curation import (  # noqa: F401 (these register their formats)
    bdd100k,
    cadc,
    coco,
    cure_tsd,
    kitti,
    nuimages,
    voc,
    yolo,
)
from roadworthy.data.curation.curating import Curation, curate
from roadworthy.data.curation.frames import READERS, AnnotatedObject, Frame, annotation_format, object_id
from roadworthy.data.curation.settings import CurationSettings, read_settings

__all__ = [
    "READERS",
    "AnnotatedObject",
    "Curation",
    "CurationSettings",
    "Frame",
    "annotation_format",
    "curate",
    "object_id",
    "read_settings",
]
