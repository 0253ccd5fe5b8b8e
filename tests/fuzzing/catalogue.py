"""All readers under test."""

from __future__ import annotations

from fuzzing import (
    annotation_readers,
    answer_readers,
    data_readers,
    network_readers,
    report_readers,
    run_readers,
    study_readers,
)
from fuzzing.readers import Reader

READERS: list[Reader] = [
    *data_readers.READERS,
    *annotation_readers.READERS,
    *study_readers.READERS,
    *answer_readers.READERS,
    *network_readers.READERS,
    *run_readers.READERS,
    *report_readers.READERS,
]
