// Shows what a glossary term means beside a link to it: under the mouse, at the keyboard's focus, or at the first tap (a
// second one follows the link). Escape, leaving the link or a tap elsewhere closes it.

document.addEventListener("DOMContentLoaded", () => {
  const links = [...document.querySelectorAll("article a[href*='#term-']")].filter((link) =>
    link.querySelector(".std-term")
  );
  if (!links.length) return;
  const box = document.createElement("div");
  Object.assign(box, { id: "ao-term", className: "ao-term", hidden: true });
  box.setAttribute("role", "tooltip");
  document.querySelector("article").append(box);
  let glossary, shown, leaving;

  function hide() {
    clearTimeout(leaving);
    shown?.removeAttribute("aria-describedby");
    delete shown?.dataset.tapped;
    shown = null;
    box.hidden = true;
  }
  async function show(link) {
    if (link === shown) return clearTimeout(leaving);
    hide();
    shown = link;
    glossary ??= fetch(link.href).then((answer) => answer.text()).then((text) =>
      new DOMParser().parseFromString(text, "text/html")
    );
    const page = await glossary.catch(() => null); // opened from a disk without a server: the link is enough
    let meaning = page?.getElementById(decodeURIComponent(link.hash.slice(1)));
    while (meaning && meaning.tagName !== "DD") meaning = meaning.nextElementSibling; // terms may share a meaning
    if (!meaning || shown !== link) return;
    box.textContent = meaning.textContent.trim();
    link.setAttribute("aria-describedby", box.id);
    box.hidden = false;
    const at = link.getClientRects()[0], edge = document.documentElement.clientWidth - box.offsetWidth - 8;
    const above = at.bottom + box.offsetHeight + 8 > innerHeight;
    box.style.left = `${Math.max(8, Math.min(at.left, edge))}px`;
    box.style.top = `${above ? at.top - box.offsetHeight - 4 : at.bottom + 4}px`;
  }
  const leave = () => {
    leaving = setTimeout(hide, 250);
  }; // time enough to move onto the box

  for (const link of links) {
    link.addEventListener("mouseenter", () => show(link));
    link.addEventListener("mouseleave", () => link.dataset.tapped || leave()); // a mouse may rest where the finger is not
    link.addEventListener("focus", () => show(link));
    link.addEventListener("blur", leave);
    link.addEventListener("click", (event) => {
      if (event.pointerType !== "touch" || link.dataset.tapped) return;
      event.preventDefault();
      show(link);
      link.dataset.tapped = true;
    });
  }
  box.addEventListener("mouseenter", () => clearTimeout(leaving));
  box.addEventListener("mouseleave", leave);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("click", (event) => {
    if (!box.contains(event.target) && !links.some((link) => link.contains(event.target))) hide();
  });
});
