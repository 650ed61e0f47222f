// Makes the graph of claims movable: drag, wheel with Ctrl, pinch, buttons and keys; a chosen node lights up what it depends on
// and what depends on it; filters dim the rest and thin the table. Without this script its nodes are links to their cards.

document.addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector(".ao-graph");
  if (!frame) return;
  const svg = frame.querySelector("svg");
  const nodes = [...svg.querySelectorAll(".ao-node")];
  const edges = [...svg.querySelectorAll(".ao-edges path")];
  const rows = [...document.querySelectorAll("a[data-row]")].map((link) => ({
    id: link.dataset.row,
    row: link.closest("tr"),
  }));
  const svgTitle = (text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "title");
    made.textContent = text;
    return made;
  };
  const whole = svg.viewBox.baseVal, home = [whole.x, whole.y, whole.width, whole.height];
  const view = [...home], MOST = 6;
  const make = (tag, attributes, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  };

  // ---- what is in view

  function show() {
    const zoom = home[2] / view[2];
    view[0] = Math.min(Math.max(view[0], home[0]), home[0] + home[2] - view[2]);
    view[1] = Math.min(Math.max(view[1], home[1]), home[1] + home[3] - view[3]);
    svg.setAttribute("viewBox", view.join(" "));
    frame.classList.toggle("ao-near", zoom > 1.01);
    frame.classList.toggle("ao-named", svg.getBoundingClientRect().width / view[2] > 1.5);
    nearer.disabled = zoom >= MOST;
    farther.disabled = all.disabled = zoom <= 1.01;
  }
  function zoom(factor, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) {
    const wanted = Math.min(Math.max((home[2] / view[2]) * factor, 1), MOST), change = home[2] / view[2] / wanted;
    view[0] = x - (x - view[0]) * change;
    view[1] = y - (y - view[1]) * change;
    view[2] = home[2] / wanted;
    view[3] = home[3] / wanted;
    show();
  }
  const inside = (event) => {
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [x, y];
  };
  const place = (node) => node.transform.baseVal[0].matrix;
  function near(node) {
    const { e: x, f: y } = place(node), margin = 20;
    if (x > view[0] + margin && x < view[0] + view[2] - margin && y > view[1] + margin && y < view[1] + view[3] - margin) {
      return;
    }
    view[0] = x - view[2] / 2;
    view[1] = y - view[3] / 2;
    show();
  }

  const button = (text, name, action) => {
    const made = make("button", { type: "button", textContent: text, title: name, ariaLabel: name });
    made.addEventListener("click", action);
    return made;
  };
  const about = () => {
    const node = byId[chosen] ?? document.activeElement.closest(".ao-node");
    return node ? [place(node).e, place(node).f] : [];
  };
  const nearer = button("+", "nearer", () => zoom(1.5, ...about()));
  const farther = button("−", "farther", () => zoom(1 / 1.5, ...about()));
  const all = button("show all", "show the whole graph", () => zoom(0));

  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // otherwise the page scrolls
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...inside(event));
  }, { passive: false });

  const held = new Map();
  let moved = 0;
  svg.addEventListener("pointerdown", (event) => {
    if (!held.size) moved = 0;
    held.set(event.pointerId, [event.clientX, event.clientY]);
  });
  svg.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) return;
    const others = [...held].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const apart = (at) => Math.hypot(at[0] - others[0][0], at[1] - others[0][1]);
    const now = [event.clientX, event.clientY], scale = view[2] / svg.getBoundingClientRect().width;
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (moved > 6 && !svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
    if (others.length) zoom(apart(now) / Math.max(apart(before), 1), ...inside(event));
    else if (home[2] / view[2] > 1.01) {
      view[0] -= (now[0] - before[0]) * scale;
      view[1] -= (now[1] - before[1]) * scale;
      show();
    }
    held.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, (event) => held.delete(event.pointerId));
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("click", (event) => {
    const node = event.target.closest(".ao-node");
    if (!node && (moved <= 6 || !event.target.closest("a"))) return;
    event.preventDefault();
    if (moved <= 6 && !event.ctrlKey && !event.metaKey) choose(node.id);
    else if (moved <= 6) open(node.href.baseVal);
  });

  // ---- one node among the others

  const panel = make("div", { className: "ao-chosen" });
  panel.setAttribute("role", "status");
  const byId = Object.fromEntries(nodes.map((node) => [node.id, node]));
  const links = (ends, start) =>
    edges.filter((edge) => edge.dataset[ends[0]] === start).map((edge) => edge.dataset[ends[1]]);
  const reach = (ends, start) => {
    const found = new Set(), waiting = [start];
    while (waiting.length) {
      for (const next of links(ends, waiting.pop())) {
        if (!found.has(next)) {
          found.add(next);
          waiting.push(next);
        }
      }
    }
    return found;
  };
  const UP = ["from", "to"], DOWN = ["to", "from"];
  const named = (id) => byId[id].dataset.name;
  let chosen = "";

  function choose(id, remember = true) {
    chosen = byId[id] ? id : "";
    const carries = chosen ? reach(UP, chosen) : new Set(), falls = chosen ? reach(DOWN, chosen) : new Set();
    frame.classList.toggle("ao-choosing", Boolean(chosen));
    for (const node of nodes) {
      node.classList.toggle("ao-this", node.id === chosen);
      node.classList.toggle("ao-below", carries.has(node.id));
      node.classList.toggle("ao-above", falls.has(node.id));
      node.tabIndex = node.id === (chosen || nodes[0].id) ? 0 : -1;
    }
    for (const edge of edges) {
      const { from, to } = edge.dataset;
      edge.classList.toggle("ao-below", (from === chosen || carries.has(from)) && carries.has(to));
      edge.classList.toggle("ao-above", (to === chosen || falls.has(to)) && falls.has(from));
    }
    if (remember) history.replaceState(null, "", chosen ? `#${chosen}` : location.pathname + location.search);
    panel.replaceChildren();
    if (!chosen) {
      panel.append(
        "Choose a node. Keys: arrows move between nodes, Enter selects one, + and − zoom, 0 shows the whole graph, and Escape clears the selection.",
      );
      return;
    }
    const node = byId[chosen], head = node.dataset.name;
    const way = (other) =>
      button(named(other), byId[other].ariaLabel, () => {
        choose(other);
        near(byId[other]);
      });
    const list = (title, ids, far) => {
      const line = make("p", {}, title);
      if (!ids.length) line.append(" nothing");
      ids.forEach((other, index) => line.append(index ? "; " : " ", way(other)));
      const more = [...far].filter((other) => !ids.includes(other));
      if (!more.length) return line;
      const these = ids.length === 1 ? "it" : "these";
      const fold = make("details", {}, make("summary", {}, `and, through ${these}, ${more.length} more`));
      more.forEach((other, index) => fold.append(index ? "; " : "", way(other)));
      return make("div", {}, line, fold);
    };
    const unique = (ends) => [...new Set(links(ends, chosen))];
    panel.append(
      make(
        "p",
        {},
        make("strong", {}, head),
        `${node.ariaLabel.slice(head.length)} `,
        make("em", {}, [node.dataset.verdict, node.dataset.known].filter(Boolean).join(", ")),
      ),
      list("Depends on:", unique(UP), carries),
      list("Supports:", unique(DOWN), falls),
      make(
        "p",
        {},
        make("a", { href: node.dataset.place }, "In its chapter"),
        " · ",
        make("a", { href: node.href.baseVal }, "Its card, with tests and runs"),
        " · ",
        button("clear selection", "clear the selection", () => choose("")),
      ),
    );
  }

  svg.addEventListener("keydown", (event) => {
    const node = event.target.closest(".ao-node");
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const free = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (steps && node && free) {
      const from = place(node);
      let best = null, least = Infinity;
      for (const other of nodes.filter((other) => other !== node && !other.classList.contains("ao-out"))) {
        const at = place(other), along = steps[0] * (at.e - from.e) + steps[1] * (at.f - from.f);
        const across = Math.abs(steps[1] * (at.e - from.e)) + Math.abs(steps[0] * (at.f - from.f));
        if (along > 1 && along + 4 * across < least) [best, least] = [other, along + 4 * across];
      }
      if (best) {
        node.tabIndex = -1;
        best.tabIndex = 0;
        best.focus({ preventScroll: home[2] / view[2] > 1.01 });
        near(best);
      }
    } else if (event.key === "Enter" && node && free) choose(node.id);
    else if (["+", "="].includes(event.key) && free) zoom(1.5, ...about());
    else if (["-", "−"].includes(event.key) && free) zoom(1 / 1.5, ...about());
    else if (event.key === "0" && free) zoom(0);
    else if (event.key === "Escape") choose("");
    else return;
    event.preventDefault();
  });

  // ---- filters, for the graph and the table alike

  const SOURCES = {
    actor: "Actor, Gruber, Cyr",
    ahn: "Ahn, Cheng, Daneshmand, Sra",
    odonnat: "Odonnat, Bouaziz, Cabannes",
    book: "this book: claims",
    statement: "this book: theorems",
  };
  const KINDS = { proved: "proved in general", cases: "proved case by case", measured: "measured" };
  const verdicts = Object.fromEntries(
    [...new Set(nodes.map((node) => node.dataset.verdict).filter(Boolean))].map((one) => [one, one]),
  );
  const bar = make("form", { className: "ao-filter" });
  const selects = Object.entries({ source: SOURCES, verdict: verdicts, evidence: KINDS }).map(([name, options]) => {
    const select = make(
      "select",
      { name },
      new Option("all", ""),
      ...Object.entries(options).map(([value, text]) => new Option(text, value)),
    );
    bar.append(make("label", {}, name, select));
    return select;
  });
  const words = make("input", { type: "search", size: 12 }), count = make("output", {});
  bar.append(make("label", {}, "search", words), count);
  bar.addEventListener("submit", (event) => {
    event.preventDefault();
    const first = nodes.find((node) => !node.classList.contains("ao-out"));
    if (!first) return;
    choose(first.id);
    near(first);
  });
  function filter() {
    const wanted = words.value.trim().toLowerCase();
    for (const node of nodes) {
      const out = selects.some((select) => select.value && select.value !== node.dataset[select.name]);
      node.classList.toggle("ao-out", out || !`${node.ariaLabel} ${node.id}`.toLowerCase().includes(wanted));
    }
    const left = new Set(nodes.filter((node) => !node.classList.contains("ao-out")).map((node) => node.id));
    for (const edge of edges) edge.classList.toggle("ao-out", !left.has(edge.dataset.from) || !left.has(edge.dataset.to));
    for (const { id, row } of rows) row.hidden = !left.has(id);
    count.textContent = `${left.size} of ${nodes.length}`;
    const entry = chosen && left.has(chosen) ? chosen : nodes.find((node) => left.has(node.id))?.id;
    for (const node of nodes) node.tabIndex = node.id === entry ? 0 : -1;
  }
  bar.addEventListener("input", filter);

  frame.before(bar);
  bar.append(make("div", { className: "ao-zoom" }, nearer, farther, all));
  frame.after(panel);
  for (const link of svg.querySelectorAll(".ao-chapter")) link.tabIndex = -1; // the page's contents lead there too
  for (const node of nodes) node.append(svgTitle(node.ariaLabel));
  const follow = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    if (!byId[id]) return;
    choose(id, false);
    near(byId[id]);
    frame.scrollIntoView({ block: "nearest" });
  };
  addEventListener("hashchange", follow);
  addEventListener("resize", show);
  filter();
  choose("", false);
  const room = svg.getBoundingClientRect().width;
  zoom(room < 500 ? 700 / room : 1, 0, 0); // on a phone the whole would be too small to touch
  follow();
});
