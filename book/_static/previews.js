// Shows what a link leads to beside it: an equation, a theorem, a claim, a citation, or what a term means. It appears under
// the mouse, at the keyboard's focus, and for a term at the first tap (a second one follows the link). Escape, leaving the
// link and the preview, or a tap elsewhere closes it. What is shown comes from a script of the page, loaded when it is needed.

document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector("meta[name='ao-previews']")?.content;
  const links = [...document.querySelectorAll("article a[href*='#']:not(.headerlink, svg a)")];
  if (!place || !links.length) return;
  const box = document.createElement("div");
  Object.assign(box, { id: "ao-preview", className: "ao-preview", hidden: true });
  box.setAttribute("role", "tooltip");
  document.querySelector("article").append(box);
  let script, wanted, shown, waiting, leaving;

  const load = () =>
    script ??= new Promise((done) => {
      const node = document.createElement("script");
      Object.assign(node, { src: place, onload: () => done(globalThis.aoPreviews), onerror: () => done({}) });
      document.head.append(node);
    });
  function hide() {
    clearTimeout(waiting);
    clearTimeout(leaving);
    shown?.removeAttribute("aria-describedby");
    delete shown?.dataset.tapped;
    shown = wanted = null;
    box.hidden = true;
  }
  const inSight = (link) => { // nobody needs a preview of what is on the screen
    const target = link.getAttribute("href")[0] === "#" && document.getElementById(link.hash.slice(1));
    const at = target && target.getClientRects()[0];
    return at && at.bottom > 0 && at.bottom < innerHeight && at.top > 0;
  };
  function stand(link) {
    const at = link.getClientRects()[0], edge = document.documentElement.clientWidth - box.offsetWidth - 8;
    const above = at.bottom + box.offsetHeight + 8 > innerHeight && at.top > box.offsetHeight + 8;
    box.style.left = `${Math.max(8, Math.min(at.left, edge))}px`;
    box.style.top = `${above ? at.top - box.offsetHeight - 4 : at.bottom + 4}px`;
  }
  async function show(link) {
    if (link === shown) return clearTimeout(leaving);
    hide();
    wanted = link;
    const text = (await load())[link.getAttribute("href")];
    if (!text || wanted !== link || inSight(link)) return;
    globalThis.MathJax?.typesetClear?.([box]);
    box.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes); // runs no script in it
    box.scrollTop = 0;
    box.hidden = false;
    shown = link;
    link.setAttribute("aria-describedby", box.id);
    stand(link);
    await globalThis.MathJax?.typesetPromise?.([box]);
    if (shown === link) stand(link);
  }
  const held = () => shown?.matches(":hover, :focus-visible") || box.matches(":hover");
  const soon = (link) => {
    clearTimeout(leaving); // or the link just left would take this one along
    clearTimeout(waiting);
    waiting = setTimeout(() => show(link), link === shown ? 0 : 150);
  };
  const leave = () => {
    clearTimeout(waiting);
    clearTimeout(leaving);
    leaving = setTimeout(() => held() || hide(), 250); // time enough to move onto the preview
  };

  for (const link of links) {
    if (link.hash.startsWith("#id")) link.removeAttribute("title"); // a citation's, which the preview says better
    const term = link.querySelector(".std-term");
    link.addEventListener("mouseenter", () => soon(link));
    link.addEventListener("mouseleave", () => link.dataset.tapped || leave()); // a mouse may rest where the finger is not
    link.addEventListener("focus", () => link.matches(":focus-visible") && show(link));
    link.addEventListener("blur", leave);
    link.addEventListener("click", (event) => {
      if (!term || event.pointerType !== "touch" || link.dataset.tapped) return;
      event.preventDefault();
      show(link);
      link.dataset.tapped = true;
    });
  }
  box.addEventListener("mouseenter", () => clearTimeout(leaving));
  box.addEventListener("mouseleave", leave);
  const follow = () => { // the page also scrolls by itself, to a link that the keyboard reaches
    if (!shown) return;
    const at = shown.getClientRects()[0];
    if (!at || at.bottom < 0 || at.top > innerHeight) hide();
    else stand(shown);
  };
  document.addEventListener("scroll", follow, { passive: true });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("click", (event) => {
    if (!box.contains(event.target) && !links.some((link) => link.contains(event.target))) hide();
  });
});
