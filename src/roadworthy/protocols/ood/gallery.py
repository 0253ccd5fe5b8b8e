"""The gallery of outliers: a few images of every set as the models saw them, and what they answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.tables import TableSpec
from roadworthy.core.types import UNDISTURBED
from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.protocols.monitor_scores import own_scores
from roadworthy.protocols.ood import table_specs
from roadworthy.protocols.ood.gans import save_gans
from roadworthy.protocols.ood.table_specs import GAN
from roadworthy.protocols.pictures import evenly_spaced, save_strip, shown_answers

if TYPE_CHECKING:
    from roadworthy.protocols.ood.tables import Evidence

GALLERY_IMAGES = 6
Rows = list[dict[str, Any]]


def save_gallery(evidence: Evidence, cases: Sequence[PlannedCase], media: Path) -> dict[TableSpec, Rows]:
    """A strip of images per set, and of the in-distribution side that it is mixed with, with the answers to them.

    Of the GANs of a configuration the hardest stands for it.
    """
    first = [case for case in cases if not case.showing.stimulus.repeat]
    inside = {(c.showing.stimulus.name, c.showing.stimulus.level): c.showing for c in first if not c.labels}
    sets = {case.labels["ood_set"]: case for case in first if _stands_for_its_set(evidence, case)}
    rows, answers = Rows(), Rows()
    for name, case in sets.items():
        shift = case.labels.get("shift")
        partner = inside.get((shift, case.showing.stimulus.level) if shift else (UNDISTURBED, 0))
        if partner is None:  # the test data could not be shown so
            continue
        row = {"ood_set": name, "kind": case.labels["kind"]}
        row["media"] = save_strip(case.showing, media / f"ood-{case.showing.stimulus.key}.png", GALLERY_IMAGES)
        row["media_in"] = save_strip(partner, media / f"ood-in-{partner.stimulus.key}.png", GALLERY_IMAGES)
        rows.append(row)
        answers += _answers(evidence, name, case.showing, partner)
    tables = {table_specs.GALLERY: rows, table_specs.GALLERY_ANSWERS: answers}
    if drawn := [case for case in first if case.labels.get("kind") == GAN]:
        tables |= save_gans(drawn, media)
        tables[table_specs.GAN_ANSWERS] = _gan_answers(evidence)
    return tables


def _stands_for_its_set(evidence: Evidence, case: PlannedCase) -> bool:
    """Whether the images of a case are shown for its set."""
    name, kind = case.labels.get("ood_set", ""), case.labels.get("kind")
    return bool(name) and (kind != GAN or int(case.labels["gan"]) == evidence.hardest.get(name, 0))


def _answers(evidence: Evidence, name: str, showing: PlannedStimulus, partner: PlannedStimulus) -> Rows:
    """What every model answered to the images that the gallery shows of both sides of a set."""
    outside = [case for key, own in evidence.outside.items() if key.ood_set == name for case in own]
    rows = Rows()
    for side, images, cases in (("out", showing, outside), ("in", partner, [*evidence.inside.values()])):
        chosen, where = evenly_spaced(len(images.data), GALLERY_IMAGES), {"ood_set": name, "side": side}
        rows += shown_answers(images, chosen, cases, evidence.class_names, where=where, labelled=side == "in")
    return rows


def _gan_answers(evidence: Evidence) -> Rows:
    """What every model said to the images that the gallery shows of the hardest GANs, and how sure it was."""
    rows = Rows()
    for key, gan in evidence.by_gan:
        if evidence.hardest[key.ood_set] != gan:
            continue
        cases = evidence.outside[key]
        readouts = next(c for c in cases if int(c.labels["gan"]) == gan and not c.stimulus.repeat).load()
        _, (scores,) = own_scores([readouts])
        for position, row in enumerate(evenly_spaced(len(readouts.ids), GALLERY_IMAGES)):
            rows.append(
                {
                    "model": key.model,
                    "ood_set": key.ood_set,
                    "gan": gan,
                    "place": position,
                    "id": readouts.ids[row],
                    "prediction": evidence.class_names[int(readouts.answers.prediction[row])],
                    "confidence": float(readouts.answers.confidence[row]),
                    "score": float(scores[row]),
                }
            )
    return rows
