// Filters the ledger by paper, verdict and chapter, keeps the choice in the address, and opens the row that the address names.

document.addEventListener("DOMContentLoaded", () => {
  const table = document.querySelector(".ao-ledger");
  if (!table) return;
  const rows = [...table.querySelectorAll(":scope > details")];
  const query = new URLSearchParams(location.search);
  const bar = document.createElement("form");
  bar.className = "ao-filter";
  const papers = {
    actor: "Actor, Gruber, Cyr",
    ahn: "Ahn, Cheng, Daneshmand, Sra",
    odonnat: "Odonnat, Bouaziz, Cabannes",
    book: "This book: claims",
    statement: "This book: theorems",
  };
  const found = (name) =>
    Object.fromEntries([...new Set(rows.map((row) => row.dataset[name]))].filter(Boolean).map((value) => [value, value]));
  const selects = {};
  for (const [name, options] of [["paper", papers], ["verdict", found("verdict")], ["chapter", found("chapter")]]) {
    const select = document.createElement("select");
    select.append(new Option("all", ""), ...Object.entries(options).map(([value, text]) => new Option(text, value)));
    select.value = query.get(name) in options ? query.get(name) : "";
    const label = document.createElement("label");
    label.append(name, select);
    bar.append(label);
    selects[name] = select;
  }
  const words = Object.assign(document.createElement("input"), { type: "search", size: 12 }),
    label = document.createElement("label");
  label.append("search", words);
  const count = document.createElement("output");
  bar.append(label, count);
  bar.addEventListener("submit", (event) => event.preventDefault());
  table.before(bar);

  function filter() {
    let shown = 0;
    const wanted = words.value.trim().toLowerCase();
    for (const row of rows) {
      row.hidden = !`${row.textContent} ${row.id}`.toLowerCase().includes(wanted) ||
        Object.entries(selects).some(([name, select]) => select.value && select.value !== row.dataset[name]);
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} claims and theorems`;
  }
  words.addEventListener("input", filter);
  for (const row of rows) {
    row.addEventListener("toggle", () => { // so that who comes back finds it open
      if (row.open) history.replaceState(null, "", `${location.pathname}${location.search}#${row.id}`);
    });
  }
  bar.addEventListener("change", () => {
    const chosen = Object.entries(selects).filter(([, select]) => select.value).map((
      [name, select],
    ) => [name, select.value]);
    history.replaceState(
      null,
      "",
      `${location.pathname}${chosen.length ? `?${new URLSearchParams(chosen)}` : ""}${location.hash}`,
    );
    filter();
  });
  function openNamed() {
    const row = rows.find((candidate) => candidate.id === location.hash.slice(1));
    if (!row) return;
    row.open = true;
    if (row.hidden) {
      for (const input of [...Object.values(selects), words]) input.value = "";
      filter();
    }
    row.scrollIntoView();
  }
  addEventListener("hashchange", openNamed);
  filter();
  openNamed();
});
