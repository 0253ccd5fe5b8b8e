"""Names that the tables of localization and its page in the report share."""

from __future__ import annotations

NAME = "localization"
TEST = "test"
"""The set of in-distribution images: the test data, undisturbed."""
ALL = "all"
"""The view that counts all classes of a set."""
CLASSES, BOXES = "classes", "boxes"
TASKS = (CLASSES, BOXES)
"""What a network is asked: what it sees, and where."""
MASK, BOX, HULL = "mask", "box", "hull"
"""Where true boxes come from: the (moved) mask, the annotation, or the hull of the annotation's turned corners."""
SIZE, DISTANCE = "size", "distance"
"""What images are sorted by: the side of the object as a share of the image, its distance in metres."""
ANSWERS, CONDITIONS = "answers", "conditions"
"""The roles of cases: answers of models, and the conditions of the images."""
