// The picture of an explorer as a file: one SVG of all that is drawn, with the styles written out, or the same as a PNG.

import { drawn, element } from "./common.js";

const STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linejoin",
  "stroke-opacity",
  "opacity",
  "paint-order",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
];

// A copy of what is shown of an element of an SVG, its styles as attributes.
function copied(node) {
  const copy = node.cloneNode(false), style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden") return null;
  for (const name of ["class", "style", "tabindex", "role", "aria-label"]) copy.removeAttribute(name);
  for (const name of STYLES) {
    const value = style.getPropertyValue(name);
    if (value && value !== "none" && value !== "normal" || name === "fill" || name === "stroke") {
      copy.setAttribute(name, value);
    }
  }
  for (const child of node.childNodes) {
    const inner = child.nodeType === Node.ELEMENT_NODE ? copied(child) : child.cloneNode();
    if (inner) copy.append(inner);
  }
  return copy;
}

const paperOf = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const { backgroundColor } = getComputedStyle(at);
    if (!/^(transparent|rgba\(.*, 0\))$/.test(backgroundColor)) return backgroundColor;
  }
  return "white";
};

// All that is drawn in an explorer, as the text of one SVG: its SVGs and canvases, and the captions of its panels.
export function pictureOf(root) {
  const shown = [...root.querySelectorAll("svg, canvas, .ao-caption")]
    .filter((node) => !node.parentElement.closest("svg, label, button"))
    .map((node) => ({ node, box: node.getBoundingClientRect() })).filter(({ box }) => box.width > 1 && box.height > 1);
  const left = Math.min(...shown.map(({ box }) => box.left)) - 8, top_ = Math.min(...shown.map(({ box }) => box.top)) - 8;
  const width = Math.ceil(Math.max(...shown.map(({ box }) => box.right)) - left + 8),
    height = Math.ceil(Math.max(...shown.map(({ box }) => box.bottom)) - top_ + 8);
  const svg = drawn("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  drawn("rect", { width, height, fill: paperOf(root) }, svg);
  for (const { node, box } of shown) {
    const place = { x: box.left - left, y: box.top - top_, width: box.width, height: box.height };
    if (node.tagName === "CANVAS") {
      drawn("image", { ...place, href: node.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" }, svg);
    } else if (node.classList.contains("ao-caption")) {
      const { color, fontSize, fontFamily } = getComputedStyle(node);
      drawn(
        "text",
        { x: place.x, y: place.y + place.height - 3, fill: color, "font-size": fontSize, "font-family": fontFamily },
        svg,
        node.textContent.trim(),
      );
    } else {
      const copy = copied(node);
      for (const [name, value] of Object.entries({ ...place, overflow: getComputedStyle(node).overflow })) {
        copy.setAttribute(name, value);
      }
      svg.append(copy);
    }
  }
  return new XMLSerializer().serializeToString(svg);
}

// The same as a PNG, with two pixels per unit.
async function asPng(text) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// Hands a file to the reader.
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export async function save(root, name, kind) {
  const text = pictureOf(root);
  download(kind === "png" ? await asPng(text) : new Blob([text], { type: "image/svg+xml" }), `${name}.${kind}`);
}
