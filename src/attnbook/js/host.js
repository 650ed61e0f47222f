// Mounts explorers in the built page: a small stand-in for the kernel's side of an anywidget model. Modules come as classic
// scripts, which browsers also load where the page was opened as a file; each defines itself once what it needs is there.

(() => {
  "use strict";
  const here = new URL(".", document.currentScript.src);
  const loaded = new Map(), waiting = new Map(), count = new Map();

  function load(name) {
    if (!loaded.has(name)) {
      loaded.set(
        name,
        new Promise((resolve, reject) => {
          const script = document.createElement("script");
          script.src = new URL(`${name}.js`, here);
          script.onerror = () => reject(new Error(`${name}.js could not be loaded`));
          script.onload = () => reject(new Error(`${name}.js could not be run`)); // too late where it has defined itself
          waiting.set(name, resolve);
          document.head.append(script);
        }),
      );
    }
    return loaded.get(name);
  }

  function define(name, needs, make) {
    waiting.get(name)(Promise.all(needs.map(load)).then((parts) => make(...parts)));
  }

  function makeModel(state) {
    const listeners = new Map();
    return {
      get: (name) => state[name],
      set(name, value) {
        state[name] = value;
        for (const listener of [...(listeners.get(`change:${name}`) ?? [])]) listener();
      },
      on(event, listener) {
        if (!listeners.has(event)) listeners.set(event, new Set());
        listeners.get(event).add(listener);
      },
      off: (event, listener) => listeners.get(event)?.delete(listener),
      save_changes() {},
    };
  }

  async function mount(host) {
    const { module, state, bounds } = JSON.parse(host.querySelector("script[type='application/json']").textContent);
    count.set(module, (count.get(module) ?? 0) + 1);
    const name = count.get(module) > 1 ? `${module}-${count.get(module)}` : module; // as the address calls it
    const { default: widget } = await load(module);
    const place = document.createElement("div");
    await widget.render({ model: makeModel({ ...state, _bounds: bounds }), el: place, name });
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", `Explorer: ${module.replaceAll("_", " ")}`);
    host.replaceChildren(place);
    host.dataset.mounted = module;
    const show = () => {
      if (location.hash.startsWith(`#${name}=`)) host.scrollIntoView();
    };
    addEventListener("hashchange", show);
    show();
  }

  globalThis.attnopt = { define, load, base: here.href };
  const start = () => {
    for (const host of document.querySelectorAll("div.attnopt-explorer")) {
      mount(host).catch((error) => { // its still stays
        console.error("explorer not mounted:", error);
        const note = host.querySelector(".attnopt-still");
        if (note) note.textContent = `This is a static image: the explorer could not start (${error.message}).`;
      });
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
