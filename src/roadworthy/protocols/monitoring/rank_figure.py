"""The critical-difference diagram: mean ranks on an axis, and bars over the monitors that are not told apart."""

from __future__ import annotations

import math
from typing import Any

from roadworthy.protocols.monitoring.facts import Ranking
from roadworthy.protocols.monitoring.names import ALL
from roadworthy.protocols.monitoring.words import view_label
from roadworthy.report import drawing
from roadworthy.report.drawing import INK, View, look, plain, short_text, text

STEP = 1.0
"""The distance between two rows of names; bars of cliques are closer."""
CLIQUE_STEP = 0.5
ROW_HEIGHT = 24
LONGEST_NAME = 20


def critical_difference(ranking: Ranking) -> View:
    """Ranks from the best on the left to the worst on the right; names of the better half on the left.

    Above the axis the bar of the critical difference, below it a thick bar for every clique.
    """
    names = list(ranking.ranks)
    left = names[: (len(names) + 1) // 2]
    right = names[len(left) :][::-1]
    first = CLIQUE_STEP * (len(ranking.cliques) + 1)
    depth = first + STEP * max(len(left), len(right), 1)
    ends = (1 - 0.02 * (len(names) - 1), len(names) + 0.02 * (len(names) - 1))
    layout = drawing.layout_of(height=96 + round(ROW_HEIGHT * depth), margin={"l": 150, "r": 150, "t": 8, "b": 8})
    layout["xaxis"] = {
        **{"range": [plain(1 - 0.06 * len(names)), plain(len(names) + 0.06 * len(names))], "fixedrange": True},
        **{"visible": False, "showgrid": False, "zeroline": False},
    }
    layout["yaxis"] = {"range": [-depth, 2.4], "visible": False, "fixedrange": True}
    shapes = [_line(1, 0, len(names), 0, 1.5)]
    shapes += [_line(rank, 0, rank, 0.22, 1.5) for rank in range(1, len(names) + 1)]
    notes = [_note(rank, 0.28, str(rank), yanchor="bottom") for rank in range(1, len(names) + 1)]
    for side, own in (("left", left), ("right", right)):
        for row, name in enumerate(own):
            level = -(first + STEP * row)
            edge = ends[0] if side == "left" else ends[1]
            rank = ranking.ranks[name]
            shapes += [_line(rank, 0, rank, level, 1), _line(rank, level, edge, level, 1)]
            notes.append(_name_note(edge, level, name, rank, side))
    for row, clique in enumerate(ranking.cliques):
        height = -CLIQUE_STEP * (row + 0.75)
        shapes.append(_line(ranking.ranks[clique[0]] - 0.04, height, ranking.ranks[clique[-1]] + 0.04, height, 5))
    if not math.isnan(ranking.distance):
        end = min(1 + ranking.distance, ends[1])
        shapes += [_line(1, 1.6, end, 1.6, 2), _line(1, 1.45, 1, 1.75, 2), _line(end, 1.45, end, 1.75, 2)]
        notes.append(_note((1 + end) / 2, 1.7, f"critical difference {ranking.distance:.2f}", yanchor="bottom"))
    layout |= {"shapes": shapes, "annotations": notes}
    return drawing.view(ranking_label(ranking), [_points(ranking)], layout)


def ranking_label(ranking: Ranking) -> str:
    """What the diagram is of: the view, and the model or all of them."""
    return f"{view_label(ranking.view)}, {'all models' if ranking.model == ALL else text(ranking.model)}"


def _points(ranking: Ranking) -> dict[str, Any]:
    ranks = ranking.ranks
    hover = [f"<b>{text(name)}</b><br>mean rank {rank:.2f} over {ranking.sets} sets" for name, rank in ranks.items()]
    points = {"x": [plain(rank) for rank in ranks.values()], "y": [0] * len(ranks), "cliponaxis": False}
    return drawing.trace("scatter", hover, mode="markers", **points, marker={"color": look(0)[0], "size": 8})


def _line(x0: float, y0: float, x1: float, y1: float, width: float) -> dict[str, Any]:
    ends = {"x0": plain(x0), "y0": plain(y0), "x1": plain(x1), "y1": plain(y1)}
    return {"type": "line", **ends, "line": {"color": INK, "width": width}}


def _note(x: float, y: float, words: str, **other: Any) -> dict[str, Any]:
    shared = {"showarrow": False, "font": {"size": 12, "color": INK}}
    return {"x": plain(x), "y": plain(y), "text": words, **shared, **other}


def _name_note(x: float, y: float, name: str, rank: float, side: str) -> dict[str, Any]:
    """A name at the end of its line, with its rank."""
    shown = short_text(name, LONGEST_NAME)
    words = f"{shown} {rank:.2f}" if side == "left" else f"{rank:.2f} {shown}"
    anchor, shift = ("right", -4) if side == "left" else ("left", 4)
    return _note(x, y, words, xanchor=anchor, xshift=shift, yanchor="middle")
