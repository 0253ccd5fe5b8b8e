// Draws the charts of the report and switches their views.
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

  document.querySelectorAll("select[data-charts]").forEach(function (select) {
    showPanels(select);
    select.addEventListener("change", function () {
      showPanels(select);
      select.dataset.charts.split(" ").forEach(function (id) { draw(id, Number(select.value)); });
    });
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
    return before.then(function () { return draw(id, 0); });
  }, Promise.resolve()).then(function () { document.documentElement.dataset.charts = "drawn"; });
})();
