"""MAITE: its data sets and models are taken as they are, and our shifts and metrics are components of it.

Nothing here imports the package `maite`: its protocols are about structure.
"""

from roadworthy.data.live import LIVE_DATA, LiveData
from roadworthy.maite.augmentation import Augmentation, DetectionTarget
from roadworthy.maite.data import KIND, Dataset, open_data
from roadworthy.maite.metric import BoxMetric, Metric
from roadworthy.maite.model import Model
from roadworthy.maite.reading import component_name, is_dataset, is_model
from roadworthy.models.live import LIVE_KINDS, LiveKind

__all__ = ["Augmentation", "BoxMetric", "Dataset", "DetectionTarget", "Metric", "Model"]

LIVE_DATA.insert(0, LiveData(KIND, is_dataset, open_data, informs_models=True))
LIVE_KINDS.insert(0, LiveKind(KIND, is_model, Model, component_name))
