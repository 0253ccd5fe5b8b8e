// Draws the charts of the report, switches their views and saves its tables.
(function () {
  "use strict";
  const charts = JSON.parse(document.getElementById("figures").textContent);
  const config = { displaylogo: false, displayModeBar: false, responsive: true, scrollZoom: false };

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

  function draw(id, index) {
    const element = document.getElementById(id);
    const view = structuredClone(charts[id][index]);
    return Plotly.react(element, view.data, view.layout, config).then(
      function () {
        if (!element.dataset.drawn) {
          element.on("plotly_afterplot", function () { fit(element); });
        }
        element.dataset.drawn = view.name;
        fit(element);
      },
      function (error) { element.textContent = "This chart could not be drawn: " + error; }
    );
  }

  function showPanels(select) {
    document.querySelectorAll("[data-panel]").forEach(function (panel) {
      if (panel.dataset.panel === select.id) {
        panel.classList.toggle("away", panel.dataset.view !== select.value);
      }
    });
  }

  const first = {};
  document.querySelectorAll("select[data-charts]").forEach(function (select) {
    showPanels(select);
    select.dataset.charts.split(" ").forEach(function (id) { first[id] = Number(select.value); });
    select.addEventListener("change", function () {
      showPanels(select);
      select.dataset.charts.split(" ").forEach(function (id) { draw(id, Number(select.value)); });
    });
  });

  // A cell that no spreadsheet takes for a formula, quoted where it must be: as core/cells.py writes them.
  function csvCell(text) {
    let cell = text.replace(/\s+/g, " ").trim().replace(/^\u2212(?=[\d.]+$)/, "-");
    if (/^'*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(cell) && !/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(cell)) {
      cell = "'" + cell;
    }
    return /[",]/.test(cell) ? '"' + cell.replace(/"/g, '""') + '"' : cell;
  }

  function csvText(table) {
    return Array.from(table.rows, function (row) {
      return Array.from(row.cells, function (cell) {
        const copy = cell.cloneNode(true);
        copy.querySelectorAll("br, li, p").forEach(function (element) { element.before(" "); });
        copy.querySelectorAll("[aria-hidden]").forEach(function (element) { element.remove(); });
        return csvCell(copy.textContent) + ",".repeat(cell.colSpan - 1);
      }).join(",") + "\n";
    }).join("");
  }

  // The name of the file: the headings that the table stands under and, where that name is taken, a number.
  const fileNames = new Set();
  function fileName(table) {
    const headings = [];
    (table.closest("section") || document).querySelectorAll("h2, h3, h4, summary").forEach(function (heading) {
      const card = heading.closest(".card");
      const above = heading.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING;
      if (above && (!card || card.contains(table))) {
        headings.splice({ H2: 0, H3: 1 }[heading.tagName] ?? 2);
        headings.push(heading.textContent.trim().slice(0, 60));
      }
    });
    const words = headings.join(" ").toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-");
    const stem = words.replace(/^-+|-+$/g, "") || "table";
    let name = stem;
    for (let number = 2; fileNames.has(name); number += 1) { name = stem + "-" + number; }
    fileNames.add(name);
    return name + ".csv";
  }

  document.querySelectorAll("main table").forEach(function (table) {
    if (!table.tHead) { return; }
    const name = fileName(table);
    const rows = table.rows.length - table.tHead.rows.length;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "save";
    button.textContent = "Save as CSV";
    button.title = (rows === 1 ? "The one row" : "All " + rows + " rows") + " of this table, as " + name;
    button.addEventListener("click", function () {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(["\ufeff" + csvText(table)], { type: "text/csv;charset=utf-8" }));
      link.download = name;
      link.click();
      setTimeout(function () { URL.revokeObjectURL(link.href); }, 60000);
    });
    (table.closest(".scroll") || table).after(button);
  });

  let opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach(function (details) { details.open = true; });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (details) { details.open = false; });
  });

  Object.keys(charts).reduce(function (before, id) {
    return before.then(function () { return draw(id, first[id] || 0); });
  }, Promise.resolve()).then(function () { document.documentElement.dataset.charts = "drawn"; });
})();
