"""The oracle of the benchmark of monitors, case by case as section 3.3 of the SAS report states it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.protocols.monitoring.names import VIEWS
from roadworthy.protocols.monitoring.oracle import outcomes, truth_of

STOP, YIELD = 3, 5

# image, monitor detects OOD, answer equals the label -> specific task, overall task
TEXT = [
    ("id", True, True, "false positive", "false positive"),
    ("id", True, False, "false positive", "true positive"),
    ("id", False, True, "true negative", "true negative"),
    ("id", False, False, "true negative", "false negative"),
    ("ood", True, True, "true positive", "false positive"),
    ("ood", True, False, "true positive", "true positive"),
    ("ood", False, True, "false negative", "true negative"),
    ("ood", False, False, "false negative", "false negative"),
]


def decided(side: str, detects: bool, is_right: bool, view: str, **options: bool) -> str:
    label, prediction = np.array([STOP]), np.array([STOP if is_right else YIELD])
    truth = truth_of(label, prediction, np.array([side == "ood"]), **options)
    return str(outcomes(truth, np.array([detects]), view)[0])


@pytest.mark.parametrize(("side", "detects", "is_right", "specific", "overall"), TEXT)
def test_every_outcome_of_the_text(side: str, detects: bool, is_right: bool, specific: str, overall: str) -> None:
    assert decided(side, detects, is_right, "detection") == specific
    assert decided(side, detects, is_right, "system") == overall
    assert decided(side, detects, is_right, "model_scope") == overall
    assert decided(side, detects, is_right, "system_label_lost") == overall  # every label survived


@pytest.mark.parametrize("is_right", [True, False])
@pytest.mark.parametrize("view", VIEWS)
def test_of_a_novel_class_no_answer_is_right(view: str, is_right: bool) -> None:
    assert decided("ood", True, is_right, view, has_label=False) == "true positive"
    assert decided("ood", False, is_right, view, has_label=False) == "false negative"


@pytest.mark.parametrize(("side", "detects", "is_right", "specific", "overall"), TEXT)
def test_id_images_of_a_novel_class_benchmark_follow_the_text(
    side: str, detects: bool, is_right: bool, specific: str, overall: str
) -> None:
    if side == "id":
        assert decided(side, detects, is_right, "detection", has_label=False) == specific
        assert decided(side, detects, is_right, "system", has_label=False) == overall


def test_an_image_that_lost_its_label_is_right_by_the_letter_and_wrong_in_the_stricter_view() -> None:
    lucky = {"side": "ood", "is_right": True, "keeps_label": False}
    assert decided(detects=False, view="system", **lucky) == "true negative"
    assert decided(detects=True, view="system", **lucky) == "false positive"
    assert decided(detects=False, view="system_label_lost", **lucky) == "false negative"
    assert decided(detects=True, view="system_label_lost", **lucky) == "true positive"
    assert decided("id", True, True, "system_label_lost", keeps_label=False) == "false positive"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30), st.booleans())
def test_outcomes_of_a_stream_are_those_of_its_images(images: list[tuple[bool, bool, bool]], has_label: bool) -> None:
    ood, right, rejected = (np.array(column) for column in zip(*images, strict=True))
    truth = truth_of(np.zeros(len(ood), int), np.where(right, 0, 1), ood, has_label=has_label)
    for view in VIEWS:
        one_by_one = [decided("ood" if o else "id", r, a, view, has_label=has_label) for o, a, r in images]
        assert outcomes(truth, rejected, view).tolist() == one_by_one
