// What the pages of Roadworthy do in a browser: charts, tables, pictures, colours, menu and print.
// Each part works on what a page has of it, so that a page without charts or tables can use this script too.
(function () {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  // Of a page that keeps something packed, what is far from the window is not laid out.
  if (document.querySelector("script[type='application/gzip']")) { root.classList.add("large"); }

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    Object.entries(attributes).forEach(function ([name, value]) { element.setAttribute(name, value); });
    element.append(...children);
    return element;
  }

  function button(label, action, attributes) {
    const made = make("button", { type: "button", ...attributes }, label);
    made.addEventListener("click", action);
    return made;
  }

  function save(name, blob) {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 60000);
  }

  // What a page keeps compressed until it is asked for: base64 of gzip in a script element that is not run.
  function unpack(script) {
    const letters = atob(script.textContent.trim());
    const bytes = new Uint8Array(letters.length);
    for (let index = 0; index < letters.length; index += 1) { bytes[index] = letters.charCodeAt(index); }
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  // The headings that an element stands under, as the start of a file's name; a number follows where that is taken.
  const fileNames = new Set();
  function fileName(element, fallback, ending) {
    const headings = [];
    (element.closest("section") || document).querySelectorAll("h2, h3, h4, summary").forEach(function (heading) {
      const card = heading.closest(".card");
      const above = heading.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING;
      if (above && (!card || card.contains(element))) {
        headings.splice({ H2: 0, H3: 1 }[heading.tagName] ?? 2);
        headings.push(heading.textContent.trim().slice(0, 60));
      }
    });
    const words = headings.join(" ").toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-");
    const stem = words.replace(/^-+|-+$/g, "") || fallback;
    let name = stem + ending;
    for (let number = 2; fileNames.has(name); number += 1) { name = stem + "-" + number + ending; }
    fileNames.add(name);
    return name;
  }

  // ---- Charts: drawn when they come near the window; zoom, series and saving can be reached by keyboard. ----
  const figures = document.getElementById("figures");
  const views = new Map(Object.entries(figures ? JSON.parse(figures.textContent) : {}));
  const packedViews = new Map();
  document.querySelectorAll("script[data-chart]").forEach(function (script) {
    packedViews.set(script.dataset.chart, script);
  });
  const chosen = new Map();
  const hiddenSeries = new Map();
  const drawing = new Map();
  const config = { displaylogo: false, displayModeBar: false, responsive: true, scrollZoom: false };
  const canDrag = matchMedia("(pointer: fine)").matches;
  const AXIS = /^[xy]axis\d*$/;

  // The view box lets a chart shrink with the page when it is printed.
  function fit(element) {
    const svgs = element.querySelectorAll(".main-svg");
    svgs.forEach(function (svg) {
      svg.setAttribute("viewBox", "0 0 " + svg.getAttribute("width") + " " + svg.getAttribute("height"));
    });
    if (svgs.length) {
      element.style.setProperty("--ratio", svgs[0].getAttribute("width") + " / " + svgs[0].getAttribute("height"));
    }
  }

  function colourOf(trace) {
    const colours = [trace.line, trace.marker].map(function (part) { return part && part.color; });
    return colours.find(function (colour) { return typeof colour === "string"; }) || "";
  }

  // A colour as browsers write it: legends name theirs in CSS, charts theirs in hexadecimal digits.
  const probe = document.createElement("i");
  function plainColour(colour) {
    probe.style.color = "";
    probe.style.color = colour;
    return probe.style.color;
  }

  function seriesOf(trace) { return String(trace.legendgroup || trace.name || ""); }

  function shownView(id) {
    const view = structuredClone(views.get(id)[chosen.get(id) || 0]);
    const hidden = hiddenSeries.get(id);
    if (hidden) {
      view.data.forEach(function (trace) {
        if (hidden.has(plainColour(colourOf(trace))) || hidden.has("name:" + seriesOf(trace))) { trace.visible = false; }
      });
    }
    Object.keys(view.layout).filter(function (name) { return AXIS.test(name); }).forEach(function (name) {
      if (canDrag) { view.layout[name].fixedrange = false; }
    });
    if (canDrag) { view.layout.dragmode = "zoom"; }
    view.layout.showlegend = false;
    return view;
  }

  function draw(id) {
    const element = document.getElementById(id);
    const view = shownView(id);
    nameSeries(id);
    return Plotly.react(element, view.data, view.layout, config).then(
      function () {
        if (!element.dataset.drawn) {
          element.on("plotly_afterplot", function () { fit(element); });
          element.on("plotly_relayout", function (change) {
            const zoomed = Object.keys(change).some(function (name) { return /axis\d*\.range/.test(name); });
            element.parentNode.querySelector(".reset").hidden = !zoomed;
          });
          element.on("plotly_doubleclick", function () { element.parentNode.querySelector(".reset").hidden = true; });
        }
        element.dataset.drawn = view.name;
        fit(element);
      },
      function (error) { element.textContent = "This chart could not be drawn: " + error; }
    );
  }

  // Draws a chart once; what is packed is read first. Drawing starts at once where the data is at hand.
  function drawOnce(id) {
    if (!drawing.has(id)) {
      const element = document.getElementById(id);
      if (!views.has(id)) {
        drawing.set(id, unpack(packedViews.get(id)).then(function (json) {
          views.set(id, JSON.parse(json));
          equip(id, element);
          return draw(id);
        }).catch(function (error) { element.textContent = "This chart could not be read: " + error; }));
      } else {
        equip(id, element);
        drawing.set(id, draw(id));
      }
    }
    return drawing.get(id);
  }

  function redraw(id) { return drawing.has(id) ? drawing.get(id).then(function () { return draw(id); }) : null; }

  function zoom(element, factor) {
    const change = {};
    Object.entries(element.layout).forEach(function ([name, axis]) {
      if (AXIS.test(name) && axis.range) {
        const [start, end] = axis.range.map(Number);
        const middle = (start + end) / 2;
        change[name + ".range"] = [middle + factor * (start - middle), middle + factor * (end - middle)];
      }
    });
    return Plotly.relayout(element, change);
  }

  function saveImage(id, format) {
    const element = document.getElementById(id);
    const view = shownView(id);
    view.layout = { ...view.layout, ...views.get(id)[chosen.get(id) || 0].layout, width: element.clientWidth, paper_bgcolor: "#ffffff" };
    const size = { format: format, width: element.clientWidth, height: view.layout.height, scale: format === "png" ? 2 : 1 };
    return Plotly.toImage(view, size).then(function (uri) {
      const start = uri.indexOf(",") + 1;
      const content = format === "svg" ? decodeURIComponent(uri.slice(start))
        : Uint8Array.from(atob(uri.slice(start)), function (letter) { return letter.charCodeAt(0); });
      save(imageNames.get(id) + "." + format, new Blob([content], { type: uri.slice(5, uri.search(/[;,]/)) }));
    });
  }

  const imageNames = new Map();
  function equip(id, element) {
    const words = element.getAttribute("aria-label") || "chart";
    imageNames.set(id, fileName(element, "chart", ""));
    const tools = make("div", { class: "chart-tools", role: "group", "aria-label": "Tools of the chart: " + words });
    const reset = button("Reset", function () { redraw(id); reset.hidden = true; tools.firstChild.focus(); }, { class: "reset", title: "Show the whole chart again (or double-click it)" });
    reset.hidden = true;
    tools.append(
      button("+", function () { zoom(element, 0.7); }, { title: "Zoom in", "aria-label": "Zoom in" }),
      button("\u2212", function () { zoom(element, 1 / 0.7); }, { title: "Zoom out", "aria-label": "Zoom out" }),
      reset,
      button("SVG", function () { saveImage(id, "svg"); }, { title: "Save this chart as an SVG file", "aria-label": "Save as SVG" }),
      button("PNG", function () { saveImage(id, "png"); }, { title: "Save this chart as a PNG file", "aria-label": "Save as PNG" })
    );
    const box = make("div", { class: "chart-box" });
    element.before(box);
    box.append(element, tools);
    const names = new Map();
    views.get(id).forEach(function (view) {
      seriesIn(view).forEach(function (trace, series) { if (!names.has(series)) { names.set(series, trace); } });
    });
    if (names.size) {
      const legend = make("p", { class: "legend below" });
      const entries = new Map();
      names.forEach(function (trace, series) {
        const swatch = make("i", { class: "swatch", "aria-hidden": "true" });
        swatch.style.background = colourOf(trace);
        swatch.hidden = plainColour(colourOf(trace)) === "rgb(255, 255, 255)";  // its name says what the mark looks like
        const label = make("span", {});
        const entry = toggle([id], "name:" + series, swatch, label);
        entries.set(series, { entry: entry, label: label });
        legend.append(entry, " ");
      });
      legendsBelow.set(id, entries);
      box.after(legend);
    }
  }

  // The series that the legend of a view names.
  function seriesIn(view) {
    const named = view.data.filter(function (trace) { return view.layout.showlegend && trace.name && trace.showlegend !== false; });
    return new Map(named.map(function (trace) { return [seriesOf(trace), trace]; }));
  }

  // A name can hold a figure of its view, and a view can lack a series: the legend says what is drawn.
  const legendsBelow = new Map();
  function nameSeries(id) {
    const shown = seriesIn(views.get(id)[chosen.get(id) || 0]);
    (legendsBelow.get(id) || []).forEach(function ({ entry, label }, series) {
      const trace = shown.get(series);
      entry.hidden = !trace;
      if (trace) { label.textContent = new DOMParser().parseFromString(trace.name, "text/html").documentElement.textContent; }
    });
  }

  // A button that hides a series of some charts: by its colour, or by its name.
  function toggle(ids, key, ...content) {
    const made = button("", function () {
      const on = made.getAttribute("aria-pressed") !== "true";
      made.setAttribute("aria-pressed", String(on));
      ids.forEach(function (id) {
        const hidden = hiddenSeries.get(id) || new Set();
        if (on) { hidden.delete(key); } else { hidden.add(key); }
        hiddenSeries.set(id, hidden);
        redraw(id);
      });
    }, { class: "series", "aria-pressed": "true", title: "Hide or show in the charts below" });
    made.append(...content);
    return made;
  }

  function showPanels(select) {
    document.querySelectorAll("[data-panel]").forEach(function (panel) {
      if (panel.dataset.panel === select.id) {
        panel.classList.toggle("away", panel.dataset.view !== select.value);
      }
    });
  }

  function startCharts() {
    const elements = Array.from(document.querySelectorAll(".chart[id]")).filter(function (element) {
      return views.has(element.id) || packedViews.has(element.id);
    });
    document.querySelectorAll("select[data-charts]").forEach(function (select) {
      function choose() {
        showPanels(select);
        select.dataset.charts.split(" ").forEach(function (id) { chosen.set(id, Number(select.value)); });
      }
      choose();
      select.addEventListener("change", function () { choose(); select.dataset.charts.split(" ").forEach(redraw); });
    });
    const legends = Array.from(document.querySelectorAll("main p.legend"));
    legends.forEach(function (legend) {
      const section = legend.closest("section");
      const ids = elements.filter(function (element) {
        const before = legends.filter(function (other) {
          return other.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING;
        });
        return element.closest("section") === section && before[before.length - 1] === legend;
      }).map(function (element) { return element.id; });
      const colours = new Set();
      ids.filter(function (id) { return views.has(id); }).forEach(function (id) {
        views.get(id).forEach(function (view) {
          view.data.forEach(function (trace) { colours.add(plainColour(colourOf(trace))); });
        });
      });
      const packed = ids.some(function (id) { return !views.has(id); });
      legend.querySelectorAll(":scope > span").forEach(function (entry) {
        const swatch = entry.querySelector("i.swatch");
        const colour = swatch && swatch.style.backgroundColor;
        if (colour && ids.length && (packed || colours.has(colour))) {
          entry.replaceWith(toggle(ids, colour, ...entry.childNodes));
        }
      });
    });
    // Charts near the window come first; one that leaves it before its turn waits until it comes near again. What is
    // not packed is drawn after them, in time for a print. Each chart is a task of its own.
    const waiting = new Set();
    const rest = elements.filter(function (element) { return views.has(element.id) && element.offsetParent; })
      .map(function (element) { return element.id; });
    const near = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (entry.isIntersecting) { waiting.add(entry.target.id); } else { waiting.delete(entry.target.id); }
      });
      start();
    }, { rootMargin: "600px" });
    let busy = false;
    function start() {
      if (!busy && (waiting.size || rest.length)) { busy = true; whenIdle(next); }
      if (!busy && !rest.length) { root.dataset.charts = "drawn"; }
    }
    function next() {
      const id = waiting.size ? waiting.values().next().value : rest.shift();
      waiting.delete(id);
      if (id === undefined) { busy = false; start(); return; }
      near.unobserve(document.getElementById(id));
      drawOnce(id).then(function () { busy = false; start(); });
    }
    elements.forEach(function (element) { near.observe(element); });
    start();
    return elements;
  }

  // What takes long waits until the page is idle, and until its reader has not typed for a second, or just clicked.
  const QUIET = { input: 1000, keydown: 1000, pointerdown: 200 };
  let quietFrom = 0;
  Object.entries(QUIET).forEach(function ([kind, pause]) {
    addEventListener(kind, function () { quietFrom = Math.max(quietFrom, performance.now() + pause); }, { capture: true, passive: true });
  });
  function whenIdle(task) {
    const wait = quietFrom - performance.now();
    if (wait > 0) {
      setTimeout(function () { whenIdle(task); }, wait);
    } else if (window.requestIdleCallback) {
      requestIdleCallback(function () { if (quietFrom > performance.now()) { whenIdle(task); } else { task(); } }, { timeout: 1000 });
    } else {
      setTimeout(task, 30);
    }
  }

  // ---- Tables: sorted by a column, filtered by words, saved whole as CSV. ----
  const SHOWN_ROWS = 100;
  const FILTER_FROM = 11;
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const NUMBER = /^([<>]?)\s*([+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)/i;
  const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&#34;": '"', "&#39;": "'", "&nbsp;": " " };

  // A cell that no spreadsheet takes for a formula, quoted where it must be: as core/cells.py writes them.
  function csvCell(text) {
    let cell = text.replace(/\s+/g, " ").trim().replace(/^\u2212(?=[\d.]+$)/, "-");
    if (/^'*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(cell) && !/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(cell)) {
      cell = "'" + cell;
    }
    return /[",]/.test(cell) ? '"' + cell.replace(/"/g, '""') + '"' : cell;
  }

  function csvLine(row) {
    return Array.from(row.cells, function (cell) {
      const copy = cell.cloneNode(true);
      copy.querySelectorAll("br, li, p").forEach(function (element) { element.before(" "); });
      copy.querySelectorAll("[aria-hidden]").forEach(function (element) { element.remove(); });
      return csvCell(copy.textContent) + ",".repeat(cell.colSpan - 1);
    }).join(",") + "\n";
  }

  function plainText(html) {
    const text = html.replace(/<[^>]*>/g, " ");
    return text.replace(/&(?:lt|gt|amp|nbsp|#34|#39);/g, function (entity) { return ENTITIES[entity]; });
  }

  function rowsOf(html) {
    const template = document.createElement("template");
    template.innerHTML = "<table><tbody>" + html + "</tbody></table>";
    return Array.from(template.content.querySelectorAll("tr"));
  }

  // What a cell is sorted by: a number where it starts with one, its text, or null where it has no value.
  function sortKey(text) {
    const words = text.replace(/\s+/g, " ").trim().replace(/\u2212/g, "-");
    if (/^(n\/a\b.*|no bounds|[\u2013-]?)$/i.test(words)) { return null; }
    const number = NUMBER.exec(words.replace(/^at least /, ""));
    if (!number) { return words; }
    const value = Number(number[2].replace(/,/g, ""));
    return value + ({ "<": -1e-12, ">": 1e-12 }[number[1]] || 0);
  }

  // Rows by one column, a stable order; rows without a value come last, whichever way it goes.
  function sorted(rows, textOf, way) {
    const keys = rows.map(function (row) { return sortKey(textOf(row)); });
    const known = keys.filter(function (key) { return key !== null; });
    const numeric = known.every(function (key) { return typeof key === "number"; });
    const order = rows.map(function (_, index) { return index; });
    order.sort(function (one, other) {
      const a = keys[one], b = keys[other];
      if (a === null || b === null) { return (a === null) - (b === null); }
      return way * (numeric ? a - b : collator.compare(textOf(rows[one]), textOf(rows[other])));
    });
    return order.map(function (index) { return rows[index]; });
  }

  // The rows of a table that stands whole in the page.
  function plainRows(table) {
    const body = table.tBodies[0];
    let original = null;
    return {
      count: body.rows.length,
      uniform: table.tBodies.length === 1 && table.tHead.rows.length === 1 && Array.from(body.rows).every(function (row) {
        return row.cells.length === table.tHead.rows[0].cells.length
          && Array.from(row.cells).every(function (cell) { return cell.colSpan === 1 && cell.rowSpan === 1; });
      }),
      ready: function () { return Promise.resolve(); },
      sort: function (column, way) {
        original = original || Array.from(body.rows);
        const cellText = function (row) { return row.cells[column].dataset.sort || row.cells[column].textContent; };
        body.append(...(way ? sorted(original, cellText, way) : original));
      },
      filter: function (matches) {
        let shown = 0;
        Array.from(body.rows).forEach(function (row) {
          row.hidden = !matches(row.textContent.toLowerCase());
          shown += !row.hidden;
        });
        return shown;
      },
      csv: function () { return Array.from(table.rows, csvLine).join(""); },
    };
  }

  // The rows of a long table: they lie packed beside those that are shown, a hundred at a time.
  function packedRows(table, script) {
    const body = table.tBodies[0];
    const pages = make("div", { class: "tools pages" });
    const where = make("span", { role: "status" });
    const back = button("Rows before", function () { show(first - SHOWN_ROWS); });
    const on = button("Rows after", function () { show(first + SHOWN_ROWS); });
    pages.append(back, where, on);
    const count = Number(script.dataset.rows);
    const leftOut = table.parentNode.querySelector(".left-out b");
    let first = 0, original = null, ordered = null, shown = null, loading = null;
    function words(start, end, of) {
      where.textContent = of ? "rows " + (start + 1) + " to " + end + " of " + of.toLocaleString("en") : "no row";
      if (leftOut) { leftOut.textContent = (count - (end - start)).toLocaleString("en"); }
      back.disabled = start === 0;
      on.disabled = end >= of;
    }
    words(0, SHOWN_ROWS, count);
    function load() {
      loading = loading || unpack(script).then(function (html) {
        original = html.split("\n").map(function (row) { return { html: row, text: null }; });
        ordered = shown = original;
        script.remove();
      });
      return loading;
    }
    function show(start) {
      return load().then(function () {
        first = Math.max(0, Math.min(start, shown.length - 1));
        const part = shown.slice(first, first + SHOWN_ROWS);
        body.replaceChildren(...rowsOf(part.map(function (row) { return row.html; }).join("")));
        words(first, first + part.length, shown.length);
      });
    }
    (table.closest(".scroll") || table).after(pages);
    let matching = null;
    function refilter() {
      shown = matching ? ordered.filter(function (row) {
        row.text = row.text || plainText(row.html).toLowerCase();
        return matching(row.text);
      }) : ordered;
      show(0);
      return shown.length;
    }
    return {
      count: count,
      uniform: true,
      ready: load,
      sort: function (column, way) {
        const cellText = function (row) { return plainText(row.html.split(/<\/t[dh]>/)[column]); };
        ordered = way ? sorted(original, cellText, way) : original;
        refilter();
      },
      filter: function (matches, any) { matching = any ? matches : null; return refilter(); },
      csv: function () {
        const lines = [csvLine(table.tHead.rows[0])];
        for (let start = 0; start < ordered.length; start += 1000) {
          const part = ordered.slice(start, start + 1000).map(function (row) { return row.html; }).join("");
          lines.push(...rowsOf(part).map(csvLine));
        }
        return lines.join("");
      },
    };
  }

  function addSorting(table, rows) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      if (!head.textContent.trim() || head.querySelector("button")) { return; }
      const sorter = button("", function () {
        const way = { none: 1, ascending: -1, descending: 0 }[head.getAttribute("aria-sort") || "none"];
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        if (way) { head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending"); }
        rows.ready().then(function () { rows.sort(column, way); });
      }, { class: "sort", title: "Sort by this column: up, down, as it was" });
      sorter.append(...head.childNodes);
      head.append(sorter);
    });
  }

  function addFilter(table, rows) {
    const field = make("input", { type: "search", autocomplete: "off", spellcheck: "false", placeholder: "words to look for" });
    const count = make("span", { role: "status" });
    const heading = table.caption || (table.closest("details, .card, section") || document).querySelector("summary, h3, h2");
    field.setAttribute("aria-label", "Filter the rows of: " + (heading ? heading.textContent.trim() : "this table"));
    field.addEventListener("focus", function () { rows.ready(); });
    field.addEventListener("input", function () {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.ready().then(function () {
        const shown = rows.filter(function (text) {
          return words.every(function (word) { return text.includes(word); });
        }, words.length > 0);
        count.textContent = words.length ? shown.toLocaleString("en") + " of " + rows.count.toLocaleString("en") + " rows" : "";
      });
    });
    (table.closest(".scroll") || table).before(make("div", { class: "tools" }, make("label", {}, "Filter ", field), count));
  }

  function startTables() {
    document.querySelectorAll("main table").forEach(function (table) {
      if (!table.tHead || !table.tBodies.length) { return; }
      const script = table.querySelector("script");
      const rows = script ? packedRows(table, script) : plainRows(table);
      const name = fileName(table, "table", ".csv");
      const saver = button("Save as CSV", function () {
        rows.ready().then(function () { save(name, new Blob(["\ufeff" + rows.csv()], { type: "text/csv;charset=utf-8" })); });
      }, { class: "save", title: (rows.count === 1 ? "The one row" : "All " + rows.count + " rows") + " of this table, as " + name });
      (table.closest(".scroll") || table).after(saver);
      if (rows.uniform && rows.count > 1) { addSorting(table, rows); }
      if (rows.count >= FILTER_FROM) { addFilter(table, rows); }
    });
    document.querySelectorAll(".scroll").forEach(function (box) {
      if (!box.hasAttribute("tabindex")) { scrollable.observe(box); }
    });
  }

  // A box that scrolls sideways can be reached by keyboard; one that does not is no stop on the way.
  const scrollable = new ResizeObserver(function (entries) {
    entries.forEach(function (entry) {
      if (entry.target.scrollWidth > entry.target.clientWidth) {
        entry.target.setAttribute("tabindex", "0");
      } else {
        entry.target.removeAttribute("tabindex");
      }
    });
  });

  // ---- Pictures: one stop per section, arrows go on, Enter or a click shows one large with its caption. ----
  function startPictures() {
    const groups = new Map();
    document.querySelectorAll("main img").forEach(function (image) {
      const section = image.closest("section") || document.body;
      groups.set(section, [...(groups.get(section) || []), image]);
    });
    if (!groups.size) { return; }
    let group = [], index = 0;
    const picture = make("img", { alt: "" });
    const caption = make("div", { class: "caption", id: "enlarged-caption" });
    const count = make("span", { role: "status" });
    const dialog = make("dialog", { class: "enlarged", "aria-labelledby": "enlarged-caption" }, picture, caption);
    dialog.append(make("div", { class: "tools" },
      button("Previous", function () { go(-1); }), count, button("Next", function () { go(1); }),
      button("Close", function () { dialog.close(); }, { class: "close" })));
    document.body.append(dialog);

    function show() {
      const image = group[index];
      const figure = image.closest("figure");
      const words = figure && figure.querySelector("figcaption");
      picture.src = image.src;
      picture.alt = image.alt;
      // Enlarged by a whole number of times, as large as the window allows.
      const across = 0.9 * innerWidth / image.naturalWidth, down = 0.62 * innerHeight / image.naturalHeight;
      const times = Math.min(across, down, 8);
      picture.style.width = Math.round(image.naturalWidth * (times > 1 ? Math.max(1, Math.floor(times)) : times)) + "px";
      caption.replaceChildren(make("p", {}, image.alt));
      if (words) { caption.append(...Array.from(words.childNodes, function (node) { return node.cloneNode(true); })); }
      count.textContent = (index + 1) + " of " + group.length;
    }
    function go(step) { index = (index + step + group.length) % group.length; show(); }
    function open(image, images) {
      group = images.filter(function (one) { return one.checkVisibility(); });
      index = group.indexOf(image);
      show();
      dialog.showModal();
    }
    function focusOn(images, image) {
      images.forEach(function (one) { one.tabIndex = one === image ? 0 : -1; });
    }
    dialog.addEventListener("keydown", function (event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { event.preventDefault(); go(step); }
    });
    dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });
    dialog.addEventListener("close", function () {
      const image = group[index];
      focusOn(groups.get(image.closest("section") || document.body), image);
      image.focus();
    });
    groups.forEach(function (images) {
      images.forEach(function (image, place) {
        image.setAttribute("role", "button");
        image.setAttribute("aria-haspopup", "dialog");
        image.tabIndex = place ? -1 : 0;
        image.addEventListener("click", function () { open(image, images); });
        image.addEventListener("keydown", function (event) {
          const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            open(image, images);
          } else if (step) {
            const visible = images.filter(function (one) { return one.checkVisibility(); });
            const next = visible[visible.indexOf(image) + step];
            if (next) { event.preventDefault(); focusOn(images, next); next.focus(); }
          }
        });
      });
    });
  }

  // ---- Light and dark: as the system wants it, or as the reader chooses for as long as the page is open. ----
  function startColours() {
    const header = document.querySelector("header");
    if (!header) { return; }
    const dark = matchMedia("(prefers-color-scheme: dark)");
    function isDark() { return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches; }
    const toggler = button("", function () { root.dataset.theme = isDark() ? "light" : "dark"; words(); }, { class: "theme" });
    function words() { toggler.textContent = isDark() ? "Light colours" : "Dark colours"; }
    dark.addEventListener("change", words);
    words();
    header.append(toggler);
  }

  // ---- The menu: folded on a narrow screen; what is jumped to is not hidden below it. ----
  function startMenu() {
    const nav = document.querySelector("nav");
    const list = nav && nav.querySelector("div");
    if (!list) { return; }
    list.id = list.id || "sections";
    const opener = button("Sections", function () { open(!nav.classList.contains("open")); }, { class: "menu", "aria-expanded": "false", "aria-controls": list.id });
    function open(on) {
      nav.classList.toggle("open", on);
      opener.setAttribute("aria-expanded", String(on));
    }
    nav.prepend(opener);
    list.addEventListener("click", function (event) { if (event.target.closest("a")) { open(false); } });
    nav.addEventListener("keydown", function (event) { if (event.key === "Escape") { open(false); opener.focus(); } });
    new ResizeObserver(function () { root.style.setProperty("--menu", nav.offsetHeight + "px"); }).observe(nav);
    // A link into something folded unfolds it.
    function unfold() {
      const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      for (let box = target && target.closest("details"); box; box = box.parentElement.closest("details")) { box.open = true; }
      if (target) { target.scrollIntoView(); }
    }
    addEventListener("hashchange", unfold);
    if (location.hash) { unfold(); }
  }

  startMenu();
  startColours();
  startTables();
  startPictures();
  const elements = startCharts();

  let opened = [];
  addEventListener("beforeprint", function () {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach(function (details) { details.open = true; });
    elements.filter(function (element) { return views.has(element.id); }).forEach(function (element) { drawOnce(element.id); });
  });
  addEventListener("afterprint", function () {
    opened.forEach(function (details) { details.open = false; });
  });
})();
