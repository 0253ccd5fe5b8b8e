"""Model, monitor and threshold as one ONNX file. Importing this package registers the scores of built-in monitors."""

from __future__ import annotations

from roadworthy.monitors.onnx_export import boxes as boxes
from roadworthy.monitors.onnx_export import confidence as confidence
from roadworthy.monitors.onnx_export import features as features
from roadworthy.monitors.onnx_export import patterns as patterns
from roadworthy.monitors.onnx_export import post_hoc as post_hoc
from roadworthy.monitors.onnx_export.agreement import Agreement, compare_decisions, score_limits
from roadworthy.monitors.onnx_export.builder import GraphBuilder, NotExportable
from roadworthy.monitors.onnx_export.export import (
    DESCRIPTION,
    ONNX_FILE,
    OnnxExport,
    export_onnx_model,
    export_onnx_monitor,
)
from roadworthy.monitors.onnx_export.network import ModelGraph
from roadworthy.monitors.onnx_export.scores import ONNX_SCORES, why_not_exportable

__all__ = [
    "DESCRIPTION",
    "ONNX_FILE",
    "ONNX_SCORES",
    "Agreement",
    "GraphBuilder",
    "ModelGraph",
    "NotExportable",
    "OnnxExport",
    "compare_decisions",
    "export_onnx_model",
    "export_onnx_monitor",
    "score_limits",
    "why_not_exportable",
]
