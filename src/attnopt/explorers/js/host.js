// Mounts explorers in the built page: a small stand-in for the kernel's side of an anywidget model.

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
  const { module, state } = JSON.parse(host.querySelector("script[type='application/json']").textContent);
  const { default: widget } = await import(new URL(`${module}.js`, import.meta.url));
  const place = document.createElement("div");
  await widget.render({ model: makeModel(state), el: place });
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", `Explorer: ${module.replaceAll("_", " ")}`);
  host.replaceChildren(place);
  host.dataset.mounted = module;
}

for (const host of document.querySelectorAll("div.attnopt-explorer")) {
  mount(host).catch((error) => console.error("explorer not mounted:", error));  // its still stays
}
