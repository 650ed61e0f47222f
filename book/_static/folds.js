// Opens what a link or a search leads to, and puts at the head of a page the switch that opens and shuts all its proofs and
// all its code; the switch is remembered over pages.

document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article");
  if (!article) return;
  const kinds = { details: "details.ao-proof, details.ao-section", code: "div.cell details.hide" };
  const memory = { // a browser may forbid it
    get(name) {
      try {
        return localStorage.getItem(`ao-${name}`) === "open";
      } catch {
        return false;
      }
    },
    set(name, open) {
      try {
        localStorage.setItem(`ao-${name}`, open ? "open" : "shut");
      } catch { /* for this page only */ }
    },
  };
  const reveal = (node) => {
    for (let fold = node?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  };

  const bar = document.createElement("div");
  bar.className = "ao-switch";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Show on all pages");
  for (const [name, selector] of Object.entries(kinds)) {
    const folds = [...article.querySelectorAll(selector)];
    if (!folds.length) continue;
    const button = document.createElement("button");
    const show = (open) => {
      button.setAttribute("aria-pressed", String(open));
      for (const fold of folds) fold.open = open;
    };
    button.type = "button";
    button.textContent = `all ${name}`;
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-pressed") !== "true", before = button.getBoundingClientRect().top;
      show(open);
      memory.set(name, open);
      scrollBy(0, button.getBoundingClientRect().top - before);
    });
    show(memory.get(name));
    bar.append(button);
  }
  const head = article.querySelector(".ao-head");
  if (bar.children.length) head ? head.append(bar) : article.querySelector("h1")?.after(bar);

  const named = () => {
    let node = null;
    try {
      node = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch { /* no name of anything */ }
    if (!node || !article.contains(node)) return;
    if (node.matches("span:empty")) node = node.parentElement; // a section's other name
    const inside = node.matches("section") ? node.querySelector(":scope > details") ?? node : node;
    const shut = Boolean(inside.closest("details:not([open])"));
    reveal(inside);
    if (shut) node.scrollIntoView();
  };
  named();
  addEventListener("hashchange", named);
  // What a search was for is marked, if Sphinx has not done so before, opened and shown.
  addEventListener("load", () => {
    let sought = null;
    try {
      sought = localStorage.getItem("sphinx_highlight_terms");
    } catch { /* nothing to mark */ }
    if (document.getElementById("search-results")) return;
    if (sought) SphinxHighlight.highlightSearchWords();
    setTimeout(() => {
      const marks = [...article.querySelectorAll(".highlighted")];
      marks.forEach(reveal);
      if (!location.hash) marks[0]?.scrollIntoView({ block: "center" });
    }, 100);
  });
});
