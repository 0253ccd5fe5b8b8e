"""The report in a real browser: it loads in silence, its tables, charts and galleries react, everybody can use it."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

import roadworthy as rw
from browser import OF_COLOURS, Watched, overflow, violations, wait_until, watched
from reports import accuracy_of, make_run, render
from roadworthy.report import packing, render_comparison
from roadworthy.verdict import Criterion

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

HOSTILE = "<img src=x onerror=\"document.title='run'\">"
CLASSES = (HOSTILE, "stop", *(f"speed {limit}" for limit in range(20, 110, 10)))
DRAWN = "document.documentElement.dataset.charts === 'drawn'"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two models with charts, long tables, pictures and criteria, and a hostile name of a class."""
    folder = tmp_path_factory.mktemp("browser")
    accuracy = accuracy_of(["v3", "v2"], ["fog", "rain", "snow", "blur"], [1, 3])
    wanted = Criterion(id="R-1", metric="accuracy", at_least=0.9)
    run = make_run(folder / "run", accuracy, classes=CLASSES, images=220, criteria=[wanted])
    (folder / "report.html").write_text(render(run), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture(scope="module")
def seen(browser: Browser, report: Path) -> Iterator[Watched]:
    """The report, opened once for the tests that leave it as it was."""
    with watched(browser, report) as opened:
        wait_until(opened.page, DRAWN)
        yield opened


def test_it_loads_in_silence_and_asks_the_network_for_nothing(seen: Watched) -> None:
    assert seen.complaints == []
    assert seen.requests == []
    assert seen.page.evaluate("document.querySelectorAll('.chart').length") > 15
    assert seen.page.evaluate("document.querySelectorAll('.chart:not([data-drawn])').length") == 0


FIRST_SCREEN = """names => names.map(name => {
  const shown = [...document.querySelectorAll(name)].filter(element => element.offsetParent);
  return shown.slice(0, 3).map(element => element.getBoundingClientRect().bottom);
})"""


@pytest.mark.parametrize("models", [2, 6])
def test_verdict_figures_and_worst_conditions_stand_on_the_first_screen(
    browser: Browser, request: pytest.FixtureRequest, tmp_path: Path, models: int
) -> None:
    """At 1280 x 800: as cards with pictures, or in words where there is no room for these."""
    if models == 2:
        page = request.getfixturevalue("seen").page
        page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
        assert page.evaluate("[innerWidth, innerHeight, scrollY]") == [1280, 800, 0]
        on_first_screen(page, ".hardest > li")
        return
    accuracy = accuracy_of([f"v{index}" for index in range(models)], ["fog", "rain", "snow"], [1, 2])
    report = tmp_path / "report.html"
    failed = {("v1", "fog", 2): "it raised"}
    report.write_text(render(make_run(tmp_path / "run", accuracy, failed=failed, mistakes=0)), encoding="utf-8")
    with watched(browser, report) as opened:
        on_first_screen(opened.page, ".worst li")


def on_first_screen(page: Page, worst: str) -> None:
    verdict, figures, conditions = page.evaluate(FIRST_SCREEN, [".badge strong", ".cards .figure", worst])
    assert len(verdict) == 1
    assert len(figures) == len(conditions) == 3
    assert max(*verdict, *figures, *conditions) <= 800


def test_a_hostile_name_is_text(seen: Watched) -> None:
    assert seen.page.title().startswith("signs")
    assert seen.page.locator("img[src=x]").count() == 0
    assert seen.page.locator(f"text={HOSTILE}").first.count() == 1


def column(table: Locator, index: int) -> list[str]:
    """The texts of a column, of the rows that are shown."""
    cells = table.locator(f"tbody tr:not([hidden]) > :nth-child({index + 1})").all_inner_texts()
    return [" ".join(cell.split()) for cell in cells]


def test_a_table_is_sorted_by_click_and_by_keyboard_and_back(seen: Watched) -> None:
    page = seen.page
    page.evaluate("document.querySelectorAll('#classification-heat details').forEach(d => { d.open = true; })")
    table = page.locator("#classification-heat table.numbers").first
    before = column(table, 2)
    values = [float(cell.split()[0]) for cell in before]
    head = table.locator("thead th").nth(2)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(cell.split()[0]) for cell in column(table, 2)] == sorted(values)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(cell.split()[0]) for cell in column(table, 2)] == sorted(values, reverse=True)
    head.get_by_role("button").press("Space")
    assert head.get_attribute("aria-sort") is None
    assert column(table, 2) == before


WORTH = """<main><table><thead><tr><th>Name</th><th>Value</th></tr></thead><tbody>
<tr><td>a</td><td>−1.5 points</td></tr><tr><td>b</td><td>n/a</td></tr><tr><td>c</td><td>&gt;99.9&nbsp;%</td></tr>
<tr><td>d</td><td>1,200</td></tr><tr><td>e</td><td>99.9&nbsp;%</td></tr><tr><td>f</td><td>&lt;0.1&nbsp;%</td></tr>
<tr><td>g</td><td>.043</td></tr><tr><td>h</td><td>99.9&nbsp;%</td></tr><tr><td>i</td><td>–</td></tr>
<tr><td>j</td><td>+0.02</td></tr><tr><td>k</td><td>at least 6.5</td></tr></tbody></table></main>"""


def test_cells_are_sorted_by_what_they_are_worth_and_missing_ones_come_last(browser: Browser) -> None:
    """Signs, shares, bounds of rounding and thousands are numbers; equal ones keep their order."""
    script = (Path(__file__).parent.parent / "src/roadworthy/report/report.js").read_text()
    window = browser.new_context()
    page = window.new_page()
    page.set_content(WORTH)
    page.evaluate(script)
    table, head = page.locator("table"), page.locator("th button").nth(1)
    head.click()
    assert "".join(column(table, 0)) == "ajgfkehcdbi"
    head.click()
    assert "".join(column(table, 0)) == "dcehkfgjabi"
    page.get_by_role("searchbox").fill("99.9 %")
    assert "".join(column(table, 0)) == "ceh"
    assert page.locator(".tools [role=status]").inner_text() == "3 of 11 rows"
    window.close()


def test_a_table_is_filtered_saved_whole_and_printed_whole(seen: Watched) -> None:
    page = seen.page
    page.evaluate("document.querySelectorAll('#classification-confusion details').forEach(d => { d.open = true; })")
    box = page.locator("#classification-confusion details").first
    table, field = box.locator("table"), box.get_by_role("searchbox")
    field.fill("100 SPEED")
    assert column(table, 0) == ["speed 100"]
    assert box.locator(".tools [role=status]").inner_text() == "1 of 11 rows"
    with page.expect_download() as download:
        box.locator("button.save").click()
    text = Path(download.value.path()).read_text("utf-8-sig")
    assert len([*csv.reader(io.StringIO(text))]) == 1 + len(CLASSES)
    page.emulate_media(media="print")
    assert table.locator("tbody tr").nth(0).evaluate("row => getComputedStyle(row).display") == "table-row"
    assert table.locator("tbody tr[hidden]").first.evaluate("row => getComputedStyle(row).display") == "table-row"
    page.emulate_media(media="screen")
    field.fill("no such row")
    assert column(table, 0) == []
    field.fill("")
    assert len(column(table, 0)) == len(CLASSES)


def ranges(page: Page, chart: str) -> list[float]:
    found: list[float] = page.evaluate(f"[...document.getElementById('{chart}').layout.yaxis.range]")
    return found


def test_a_chart_hovers_zooms_and_is_reset(seen: Watched) -> None:
    page, chart = seen.page, "classification-curve-0"
    element = page.locator(f"#{chart}")
    element.scroll_into_view_if_needed()
    whole, box = ranges(page, chart), element.bounding_box()
    assert box is not None
    area = element.locator(".nsewdrag").first.bounding_box()
    assert area is not None
    point = element.locator(".points path").nth(1).bounding_box()
    assert point is not None
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    wait_until(page, f"document.querySelector('#{chart} .hoverlayer').textContent.includes('bounds')")
    page.mouse.move(area["x"] + 20, area["y"] + 20)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2, steps=5)
    page.mouse.up()
    tools = page.locator(".chart-box", has=element).locator(".chart-tools")
    wait_until(page, f"document.getElementById('{chart}').layout.yaxis.range[1] !== {whole[1]}")
    tools.get_by_role("button", name="Reset").press("Enter")
    wait_until(page, f"document.getElementById('{chart}').layout.yaxis.range[1] === {whole[1]}")
    tools.get_by_role("button", name="Zoom in").press("Enter")
    wait_until(page, f"document.getElementById('{chart}').layout.yaxis.range[1] < {whole[1]}")
    tools.get_by_role("button", name="Reset").press("Enter")
    wait_until(page, f"document.getElementById('{chart}').layout.yaxis.range[1] === {whole[1]}")


def test_a_choice_switches_charts_and_a_legend_hides_a_series(seen: Watched) -> None:
    page = seen.page
    page.locator("#classification-curve-metric").select_option(label="AUROC")
    wait_until(page, "document.getElementById('classification-curve-3').dataset.drawn === 'AUROC'")
    page.locator("#classification-curve-metric").select_option(index=0)
    switch = page.locator("#classification-curves .legend").get_by_role("button", name="v2")
    visible = "document.getElementById('classification-curve-0').data.filter(t => t.visible !== false).length"
    assert page.evaluate(visible) == 2
    switch.press("Enter")
    assert switch.get_attribute("aria-pressed") == "false"
    wait_until(page, f"{visible} === 1")
    switch.click()
    wait_until(page, f"{visible} === 2")


@pytest.mark.parametrize(("name", "start"), [("SVG", b"<svg"), ("PNG", b"\x89PNG")])
def test_a_chart_is_saved_as_a_picture(seen: Watched, name: str, start: bytes) -> None:
    chart = seen.page.locator("#classification-heat .chart-box").first
    chart.scroll_into_view_if_needed()
    chart.hover()
    with seen.page.expect_download() as download:
        chart.get_by_role("button", name=f"Save as {name}").click()
    assert download.value.suggested_filename == f"by-shift-and-level-v3.{name.lower()}"
    assert Path(download.value.path()).read_bytes().startswith(start)
    assert seen.complaints == []


def test_pictures_open_large_go_on_by_arrows_and_give_the_focus_back(seen: Watched) -> None:
    page = seen.page
    images = page.locator("#classification-mistakes img")
    assert images.evaluate_all("all => all.filter(one => one.tabIndex === 0).length") == 1, "one stop for all of them"
    images.first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert "confidence" in dialog.inner_text()
    assert HOSTILE in dialog.inner_text(), "the true class"
    first = dialog.locator("img").get_attribute("alt")
    page.keyboard.press("ArrowRight")
    assert dialog.locator("img").get_attribute("alt") != first
    assert "2 of" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert images.nth(1).evaluate("image => image === document.activeElement")
    images.nth(2).click()
    dialog.get_by_role("button", name="Close").click()
    assert dialog.count() == 0


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_width_scrolls_sideways(seen: Watched, width: int) -> None:
    seen.page.set_viewport_size({"width": width, "height": 800})
    wait_until(seen.page, "document.documentElement.scrollWidth <= innerWidth")
    assert overflow(seen.page) == 0
    if width == 390:
        menu = seen.page.get_by_role("button", name="Sections")
        assert not seen.page.locator("nav a").first.is_visible()
        menu.click()
        seen.page.locator("nav a", has_text="Provenance").click()
        assert seen.page.locator("#provenance h2").is_visible()
        assert not seen.page.locator("nav a").first.is_visible()
    seen.page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_light_and_dark(seen: Watched, scheme: Literal["light", "dark"]) -> None:
    page = seen.page
    page.emulate_media(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert violations(page, OF_COLOURS if scheme == "dark" else ()) == []
    background = "getComputedStyle(document.body).backgroundColor"
    preferred = page.evaluate(background)
    page.get_by_role("button", name="colours").click()
    assert page.evaluate(background) != preferred
    page.get_by_role("button", name="colours").click()
    assert page.evaluate(background) == preferred
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""], "it remembers nothing"
    page.evaluate("delete document.documentElement.dataset.theme")
    page.emulate_media(color_scheme="light")


@pytest.fixture(scope="module")
def packed_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of so many conditions that their table is packed; its charts are packed too."""
    folder = tmp_path_factory.mktemp("packed")
    pairs = [(index, level) for index in range(44) for level in range(1, 6)]
    accuracy = {("v3", f"weather{index}", level): 0.98 - 0.004 * index * level for index, level in pairs}
    run = make_run(folder / "run", {("v3", "none", 0): 0.98, **accuracy}, mistakes=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PLAIN_CHARTS", 1000)
        patch.setattr(packing, "LONG_TABLE", 200)
        (folder / "report.html").write_text(render(run), encoding="utf-8")
    return folder / "report.html"


def test_what_is_packed_is_unpacked_when_it_is_asked_for(browser: Browser, packed_report: Path) -> None:
    with watched(browser, packed_report) as opened:
        page = opened.page
        drawn = "document.querySelectorAll('.chart[data-drawn]').length"
        assert page.evaluate(drawn) < page.evaluate("document.querySelectorAll('.chart').length")
        page.locator("#classification-heat-0").scroll_into_view_if_needed()
        wait_until(page, "document.getElementById('classification-heat-0').dataset.drawn === 'Accuracy'")
        box = page.locator("#classification-heat details", has=page.locator("table.numbers"))
        box.locator("summary").click()
        table = box.locator("table")
        where = box.locator(".pages [role=status]")
        assert len(column(table, 0)) == 100
        assert where.inner_text() == "rows 1 to 100 of 221"
        box.get_by_role("button", name="Rows after").click()
        wait_until(page, "document.querySelector('.pages [role=status]').textContent === 'rows 101 to 200 of 221'")
        box.get_by_role("searchbox").fill("WEATHER42")
        wait_until(page, "document.querySelector('.pages [role=status]').textContent === 'rows 1 to 5 of 5'")
        table.locator("thead button").nth(2).click()
        wait_until(page, "document.querySelector('.numbers tbody tr td').textContent === '5'")
        assert column(table, 1) == ["5", "4", "3", "2", "1"]
        with page.expect_download() as download:
            box.locator("button.save").click()
        assert len([*csv.reader(Path(download.value.path()).read_text("utf-8-sig").splitlines())]) == 222
        assert opened.complaints == []
        assert opened.requests == []


PRINTED = "getComputedStyle(document.querySelector('#classification-heat .left-out')).display"


def test_a_print_says_which_rows_it_leaves_out(browser: Browser, packed_report: Path) -> None:
    with watched(browser, packed_report) as opened:
        page = opened.page
        box = page.locator("#classification-heat details", has=page.locator("table.numbers"))
        note = box.locator(".left-out")
        assert page.evaluate(PRINTED) == "none", "on the screen the rows are at hand"
        page.emulate_media(media="print")
        assert page.evaluate(PRINTED) == "block"
        assert "Left out here: 121 of 221 rows. All of them: in tables/classification.csv" in note.text_content()
        page.emulate_media(media="screen")
        box.locator("summary").click()
        box.get_by_role("searchbox").fill("weather42")
        wait_until(page, "document.querySelector('.pages [role=status]').textContent === 'rows 1 to 5 of 5'")
        assert note.locator("b").text_content() == "216"


VISIBLE = "document.getElementById('classification-curve-all').data.map(trace => trace.visible !== false)"


def test_a_legend_of_many_models_hides_one_of_them(browser: Browser, tmp_path: Path) -> None:
    """The ninth model has the hue of the first."""
    names = [f"v{index}" for index in range(10)]
    run = make_run(tmp_path / "run", accuracy_of(names, ["fog"], [1, 2]), mistakes=0)
    (tmp_path / "report.html").write_text(render(run), encoding="utf-8")
    with watched(browser, tmp_path / "report.html") as opened:
        page = opened.page
        wait_until(page, DRAWN)
        page.locator("#classification-curves .legend").get_by_role("button", name="v8", exact=True).click()
        wait_until(page, f"{VISIBLE}.includes(false)")
        assert page.evaluate(VISIBLE) == [name != "v8" for name in names]


def test_a_legend_says_the_figures_of_the_benchmark_that_is_chosen(browser: Browser, tmp_path: Path) -> None:
    """The area under a risk curve stands in the name of its series, and differs between benchmarks."""
    shutil.copytree(Path(__file__).parent / "golden/monitoring", tmp_path / "run")
    report = rw.open_run(tmp_path / "run").report()
    with watched(browser, report) as opened:
        page = opened.page
        wait_until(page, DRAWN)
        chart = "document.getElementById('monitoring-risk-0')"
        legend = page.locator(".chart-box:has(#monitoring-risk-0) + .legend")
        choice = page.locator("#monitoring-risk-set")
        said = []
        for index in (0, 1):
            choice.select_option(index=index)
            label = choice.locator("option").nth(index).inner_text()
            wait_until(page, f"{chart}.dataset.drawn === {json.dumps(label)}")
            names = page.evaluate(f"{chart}.data.filter(trace => trace.showlegend !== false).map(trace => trace.name)")
            assert [entry.strip() for entry in legend.get_by_role("button").all_inner_texts()] == names
            said.append(names)
        assert said[0] != said[1]


def test_everything_is_printed(seen: Watched, tmp_path: Path) -> None:
    """A PDF of all sections, with folded tables open, charts drawn and light colours whatever the screen has."""
    seen.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    pdf = seen.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") > 5
    seen.page.emulate_media(media="print")
    assert seen.page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 37, 48)"
    seen.page.emulate_media(media="screen")
    seen.page.evaluate("delete document.documentElement.dataset.theme")


def test_a_comparison_is_for_everybody_too(browser: Browser, tmp_path: Path) -> None:
    golden = Path(__file__).parent / "golden" / "run"
    page_file = tmp_path / "comparison.html"
    page_file.write_text(render_comparison(rw.compare([golden, golden]), "golden", 0.05, 0.001), encoding="utf-8")
    with watched(browser, page_file, color_scheme="dark") as opened:
        wait_until(opened.page, DRAWN)
        opened.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert violations(opened.page) == []
        assert opened.complaints == opened.requests == []
        opened.page.set_viewport_size({"width": 390, "height": 800})
        wait_until(opened.page, "document.documentElement.scrollWidth <= innerWidth")
