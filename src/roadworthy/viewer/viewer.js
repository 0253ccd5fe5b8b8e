// The viewer works without this; it submits a filter at once, and asks again for pages that change by themselves.
"use strict";
(() => {
  let tag = null;

  function prepare(root) {
    for (const choice of root.querySelectorAll("select[data-submit]")) {
      choice.addEventListener("change", () => choice.form.requestSubmit());
    }
    for (const button of root.querySelectorAll("button[data-compare]")) {
      const form = button.form;
      const update = () => { button.disabled = form.querySelectorAll("input[name=run]:checked").length !== 2; };
      form.addEventListener("change", update);
      update();
    }
  }

  async function refresh() {
    const main = document.getElementById("main");
    if (!main || !main.dataset.refresh) return;
    const wait = Number(main.dataset.refresh);
    try {
      const busy = main.contains(document.activeElement) && document.activeElement.matches("input, select");
      const marked = main.querySelector("input:checked");
      if (!document.hidden && !busy && !marked) {
        const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          tag = answer.headers.get("etag");
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const fresh = page.getElementById("main");
          if (fresh) {
            document.title = page.title;
            document.querySelector("header").replaceWith(page.querySelector("header"));
            main.replaceWith(fresh);
            prepare(fresh);
          }
        }
      }
    } catch (error) {
      // the viewer was stopped, or is starting again: ask later
    }
    setTimeout(refresh, wait);
  }

  prepare(document);
  const main = document.getElementById("main");
  if (main && main.dataset.refresh) setTimeout(refresh, Number(main.dataset.refresh));
})();
