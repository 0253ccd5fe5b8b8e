"""Images that are there twice: copies within a data set count in one object, sets of two roles share a few at most."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from itertools import combinations

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.data.base import COPIES, OpenedDataset, identities
from roadworthy.data.subset import Regrouped

FEW = 0.01
"""Share of images of a set that may be in a set of another role, with a warning: published sets have a few such."""


def counted_once(data: OpenedDataset) -> OpenedDataset:
    """The data set in which an image equal to an earlier one is in the group of that image, and a note says how many.

    Only that image moves: other frames of its own object stay where they are. A set without copies comes back as it is.

    >>> import numpy as np
    >>> from roadworthy.data import open_dataset
    >>> grey = np.broadcast_to(np.array([1, 2, 1, 3], np.uint8)[:, None, None, None], (4, 8, 8, 3))
    >>> counted_once(open_dataset((grey, [0, 0, 0, 0], ["stop"]))).groups
    ('0', '1', '0', '3')
    """
    earliest: dict[str, int] = {}
    first = [earliest.setdefault(identity, row) for row, identity in enumerate(identities(data))]
    copies = [row for row, original in enumerate(first) if original < row]
    if not copies:
        return data
    copy, original = (data.ids[row] for row in (copies[0], first[copies[0]]))
    number = f"{len(copies)} of {len(data)} images, such as {copy} (equal to {original})"
    relabelled = sum(data.labels[row] != data.labels[first[row]] for row in copies)
    doubt = f"; {relabelled} of them with another label than the image that they equal" if relabelled else ""
    return Regrouped(data, [data.groups[original] for original in first], f"{COPIES}{number}{doubt}")


def check_apart(*roles: Mapping[str, Dataset]) -> None:
    """Refuse sets of different roles that share images; a few, up to 1 % of the smaller set, give a warning.

    Each mapping holds the sets of one role by what they are called: two sets of the same role may share images.
    """
    known = [{what: (data, set(identities(data))) for what, data in sets.items()} for sets in roles]
    for earlier, later in combinations(known, 2):
        for other, (other_data, other_images) in earlier.items():
            for what, (data, images) in later.items():
                if images.isdisjoint(other_images):
                    continue
                if len(other_data) < len(data):
                    _tolerate_few(other, other_data, what, images)
                else:
                    _tolerate_few(what, data, other, other_images)


def _tolerate_few(what: str, data: Dataset, other: str, known: Collection[str]) -> None:
    """Warn of images of a set that another holds, or refuse them where they are more than few."""
    shared = shared_ids(data, known)
    sentence = f"{len(shared)} of {len(data)} images of {what} are images of {other} too, such as {shared[0]}: "
    if len(shared) == len(data):
        raise InputError(f"{sentence}name other images for one of the two")
    sentence += "take them out of one of the two"
    if len(shared) > FEW * len(data):
        raise InputError(f"{sentence} (up to {FEW:.0%} give a warning)")
    warnings.warn(sentence, stacklevel=4)


def shared_ids(data: Dataset, known: Collection[str]) -> list[str]:
    """The ids of the images that are among `known` ones, by their identities."""
    return [name for name, identity in zip(data.ids, identities(data), strict=True) if identity in known]
