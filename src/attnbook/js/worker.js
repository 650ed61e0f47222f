// In a worker of the page: loads modules as `host.js` does in the page, and lets the runner answer messages.
"use strict";
const made = {};
const load = (name) => {
  if (!(name in made)) importScripts(`${name}.js`);
  return made[name];
};
globalThis.attnopt = {
  define(name, needs, make) {
    made[name] = make(...needs.map(load));
  },
};
const { serve } = load("runner");
const receive = serve((message) => postMessage(message), 40);
onmessage = ({ data }) => receive(data);
postMessage({ kind: "ready" });
