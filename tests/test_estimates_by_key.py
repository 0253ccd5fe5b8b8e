"""Tables of estimates by key hold what their rows say, and long tables of a page are packed without a loss."""

from __future__ import annotations

import base64
import gzip
import math
import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.report.estimates import Axis, axis, estimates_by, joined, no_estimates
from roadworthy.report.facts import estimate_of
from roadworthy.report.packing import LONG_TABLE, SHOWN_ROWS, chart_blocks, pack_tables, table_end

NUMBERS = st.one_of(st.none(), st.floats(-5, 5))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "model": st.sampled_from(["a", "b", "<c>"]),
            "metric": st.sampled_from(["ece", "accuracy"]),
            "value": NUMBERS,
            "lo": NUMBERS,
            "hi": NUMBERS,
            "sd": NUMBERS,
            "n": st.integers(0, 9),
            "groups": st.integers(0, 9),
            "method": st.sampled_from(["", "bootstrap"]),
            "reason": st.sampled_from([None, "", "case failed"]),
        }
    ),
    min_size=1,
    max_size=8,
)
FLOATS = dict.fromkeys(("value", "lo", "hi", "sd"), pa.float64())
SCHEMA = pa.schema(
    {"model": pa.string(), "metric": pa.string(), **FLOATS, "n": pa.int64(), "groups": pa.int64()}
    | {"method": pa.string(), "reason": pa.string()}
)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS)
def test_it_is_the_dictionary_of_its_rows(rows: list[dict[str, object]]) -> None:
    table = estimates_by(pa.Table.from_pylist(rows, SCHEMA), "model", "metric")
    expected = {(row["model"], row["metric"]): estimate_of(row) for row in rows}
    assert {key: str(table[key]) for key in table} == {key: str(cell) for key, cell in expected.items()}
    assert len(table) == len(expected)
    assert table.get(("a", "no such metric")) is None
    by_row = [(row["model"], row["metric"], estimate_of(row)) for row in rows]
    measured = [cell for _, metric, cell in by_row if metric == "ece" and not cell.missing]
    extent = table.extent(1, "ece")
    assert (extent is None) == (not measured)
    if extent:
        ends = [end for cell in measured for end in (cell.value, cell.lo, cell.hi) if not math.isnan(end)]
        assert extent == (*_reach([cell.value for cell in measured]), *_reach(ends))
    lacking = [(model, metric) for model, metric, cell in by_row if cell.missing or math.isnan(cell.lo)]
    assert [key for key, _ in table.lacking()] == lacking
    assert [key for key, _ in table.of(1, "ece")] == [(m, metric) for m, metric, _ in by_row if metric == "ece"]


def _reach(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def test_an_empty_table_has_no_estimate() -> None:
    assert len(no_estimates()) == 0
    assert ("a", "b", "c") not in no_estimates()
    assert len(estimates_by(pa.table({}), "model", "metric")) == 0


def test_two_axes_are_joined_in_the_order_in_which_pairs_occur() -> None:
    table = pa.table({"shift": ["snow", "fog", "snow", "fog"], "level": [2, 1, 2, 2]})
    both = joined(axis(table["shift"]), axis(table["level"]), lambda shift, level: f"{shift} {level}")
    assert both.values == ("snow 2", "fog 1", "fog 2")
    assert both.codes.tolist() == [0, 1, 0, 2]
    assert isinstance(both, Axis)


def table_of(rows: int, cell: str = "<td>{}</td>") -> str:
    body = "".join(f"<tr>{cell.format(row)}</tr>\n" for row in range(rows))
    return f"<p>before</p><table class='n'><thead></thead>\n<tbody>\n{body}</tbody></table></div><p>after</p>"


@pytest.mark.parametrize(
    "html", [table_of(LONG_TABLE), table_of(LONG_TABLE + 1, '<td colspan="2">{}</td>'), "no table"]
)
def test_short_tables_and_those_with_spans_stay_as_they_are(html: str) -> None:
    assert pack_tables(html) == html


def test_a_long_table_keeps_its_first_rows_and_packs_all() -> None:
    html = table_of(LONG_TABLE + 50)
    packed = pack_tables(html + table_of(3))
    assert packed == pack_tables(html + table_of(3)), "the same bytes every time"
    shown = packed.partition("<script")[0]
    assert shown.count("<tr>") == SHOWN_ROWS
    (block,) = re.findall('<script type="application/gzip" data-rows="350">(.*?)</script></table>', packed)
    rows = gzip.decompress(base64.b64decode(block)).decode().split("\n")
    assert rows == [f"<tr><td>{row}</td></tr>" for row in range(LONG_TABLE + 50)]
    assert packed.startswith("<p>before</p><table class='n'>")
    assert "Left out here: <b>250</b> of 350 rows" in packed
    assert packed.endswith(table_of(3))
    assert pack_tables(packed) == packed, "packed once"


@pytest.mark.parametrize("count", [0, 1, LONG_TABLE, LONG_TABLE + 1, 1000])
def test_a_table_that_is_packed_row_by_row_is_as_one_that_is_packed_whole(count: int) -> None:
    end = table_end(iter(range(count)), "tables/a&b.csv", caller="<tr>\n<td>{}</td></tr>\n".format)
    streamed = f"<table>{end}"
    whole = "<table><tbody>\n" + "".join(f"<tr> <td>{row}</td></tr>\n" for row in range(count)) + "</tbody></table>"
    if count <= LONG_TABLE:
        assert streamed.split() == whole.split()
    else:
        named = " in <code>tables/a&amp;b.csv</code> of the run, and"
        assert streamed.replace(named, "") == pack_tables(whole)
        assert named in streamed


def test_an_axis_is_the_same_of_texts_and_of_their_dictionary() -> None:
    """Also where a filter leaves texts in the dictionary that no row has, and where a row has none."""
    texts = pa.chunked_array([["snow", "fog", "rain", "fog"], ["rain", "hail"]])
    table = pa.table({"plain": texts, "encoded": texts.dictionary_encode(), "row": range(6)})
    for rows in (table, table.slice(1, 4), table.filter(pc.field("row") != 1), table.slice(0, 0)):
        plain, encoded = axis(rows["plain"]), axis(rows["encoded"])
        assert plain.values == encoded.values
        assert plain.codes.tolist() == encoded.codes.tolist()
    some = pa.chunked_array([["fog", None, "fog"]])
    assert axis(some.dictionary_encode()).values == axis(some).values == ("fog", None)


def test_charts_are_packed_only_where_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chart_blocks({"a": [1]}) == ('{"a":[1]}', [])
    monkeypatch.setattr("roadworthy.report.packing.PLAIN_CHARTS", 5)
    plain, blocks = chart_blocks({"a": [1], "b": ["</script>"]})
    assert plain == "{}"
    assert [(name, gzip.decompress(base64.b64decode(block))) for name, block in blocks] == [
        ("a", b"[1]"),
        ("b", b'["</script>"]'),
    ]
