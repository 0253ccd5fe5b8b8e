// The list of runs and the pages of tables of a viewer that was written as files. All text is put in as text.
"use strict";
(() => {
  const PAGE = 50;
  const PILLS = { running: "running", stopped: "inconclusive", damaged: "fail" };

  function make(name, text, attributes) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    return element;
  }

  function pager(home, page, pages, go) {
    home.replaceChildren();
    if (pages < 2) return;
    const row = make("div");
    const link = (label, target) => {
      const button = make("button", label, { type: "button" });
      button.addEventListener("click", () => go(target));
      return button;
    };
    if (page > 1) row.append(link("Previous", page - 1));
    row.append(make("span", `Page ${page} of ${pages}`));
    if (page < pages) row.append(link("Next", page + 1));
    home.append(row);
  }

  function rowOf(run, labels) {
    const row = make("tr");
    const head = make("th", undefined, { scope: "row" });
    head.append(make("a", run.name, { href: `runs/${run.id}/index.html` }));
    const verdict = make("td", undefined, { "data-label": "Verdict" });
    verdict.append(make("span", labels[run.status] || run.status, { class: `pill ${PILLS[run.status] || run.status}` }));
    row.append(head, verdict);
    const cells = { Date: run.created.slice(0, 16).replace("T", " "), Models: run.models.join(", "), Data: run.data.join(", "),
      Protocols: run.protocols.join(", "), Headline: run.headline, Failed: run.failed || "" };
    for (const [label, text] of Object.entries(cells)) row.append(make("td", String(text), { "data-label": label }));
    return row;
  }

  async function list(table) {
    const { labels, runs } = await (await fetch("runs.json")).json();
    const words = document.getElementById("words");
    const status = document.getElementById("status");
    const model = document.getElementById("model");
    for (const name of new Set(runs.map((run) => run.status))) status.append(make("option", labels[name] || name, { value: name }));
    for (const name of [...new Set(runs.flatMap((run) => run.models))].sort()) model.append(make("option", name, { value: name }));
    const texts = runs.map((run) => [run.name, run.study, run.created, run.headline, ...run.models, ...run.data, ...run.protocols].join("\n").toLowerCase());
    function show(page) {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = runs.filter((run, index) => (!status.value || run.status === status.value)
        && (!model.value || run.models.includes(model.value)) && wanted.every((word) => texts[index].includes(word)));
      const pages = Math.max(1, Math.ceil(chosen.length / PAGE));
      document.getElementById("count").textContent = `${chosen.length} of ${runs.length} runs`;
      table.tBodies[0].replaceChildren(...chosen.slice((page - 1) * PAGE, page * PAGE).map((run) => rowOf(run, labels)));
      pager(document.getElementById("pager"), page, pages, show);
    }
    words.form.addEventListener("submit", (event) => event.preventDefault());
    for (const field of [words, status, model]) field.addEventListener("input", () => show(1));
    show(1);
  }

  function rows(table) {
    const pages = Number(table.dataset.pages);
    const numeric = [...table.tHead.rows[0].cells].map((cell) => cell.classList.contains("n"));
    const words = document.getElementById("words");
    const cache = new Map();
    const read = async (page) => {
      if (!cache.has(page)) cache.set(page, await (await fetch(`tables/${encodeURIComponent(table.dataset.table)}/${page}.json`)).json());
      return cache.get(page);
    };
    const fill = (found) => table.tBodies[0].replaceChildren(...found.map((cells) => {
      const row = make("tr");
      cells.forEach((text, index) => row.append(make("td", text, numeric[index] ? { class: "n" } : {})));
      return row;
    }));
    async function show(page) {
      fill(await read(page));
      pager(document.getElementById("pager"), page, pages, show);
    }
    async function filter() {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      if (!wanted.length) { await show(1); return; }
      const found = [];
      for (let page = 1; page <= pages && found.length < 1000; page += 1) {
        found.push(...(await read(page)).filter((cells) => wanted.every((word) => cells.some((cell) => cell.toLowerCase().includes(word)))));
      }
      fill(found.slice(0, 1000));
      pager(document.getElementById("pager"), 1, 1, show);
      document.getElementById("count").textContent = found.length > 999 ? "The first 1,000 rows that match" : `${found.length} rows match`;
    }
    words.form.addEventListener("submit", (event) => event.preventDefault());
    words.addEventListener("input", filter);
    pager(document.getElementById("pager"), 1, pages, show);
  }

  const runs = document.getElementById("runs");
  const table = document.getElementById("rows");
  if (runs) list(runs);
  if (table) rows(table);
})();
