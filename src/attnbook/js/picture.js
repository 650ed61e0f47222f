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

const GAP = 12, LINE = 17; // between what is drawn, and from line to line of the title
const pen = element("canvas").getContext("2d");

// The pieces of a caption where the page put them: words of one color that share a line, each with its baseline.
function piecesOf(node) {
  const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), range = document.createRange(), pieces = [];
  while (texts.nextNode()) {
    const { currentNode: text } = texts,
      { color, font, fontSize, fontFamily, fontWeight } = getComputedStyle(text.parentElement);
    pen.font = font;
    const { fontBoundingBoxDescent: below } = pen.measureText("x");
    for (const { 0: word, index } of text.data.matchAll(/\S+/g)) {
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      const { left: x, bottom, width } = range.getBoundingClientRect(), before = pieces.at(-1);
      if (!width) continue; // it is hidden
      if (before?.of === text && before.y === bottom - below) before.said += ` ${word}`;
      else pieces.push({ of: text, said: word, x, y: bottom - below, color, fontSize, fontFamily, fontWeight });
    }
  }
  return pieces;
}

// A text in lines of at most some width.
function wrapped(text, width) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && pen.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// Takes out of the heights what no box covers, except a small gap.
function closedUp(boxes) {
  const cuts = [], sorted = [...boxes].sort((a, b) => a.top - b.top);
  let end = sorted[0].bottom;
  for (const { top, bottom } of sorted) {
    if (top > end + GAP) cuts.push({ at: top, by: top - end - GAP });
    end = Math.max(end, bottom);
  }
  return (y) => cuts.reduce((height, { at, by }) => (y >= at ? height - by : height), y);
}

// All that is drawn in an explorer, as the text of one SVG: its SVGs and canvases, and the captions of its panels; above them
// a title, if one is given.
export function pictureOf(root, title = "") {
  const shown = [...root.querySelectorAll("svg, canvas, .ao-caption")]
    .filter((node) => !node.parentElement.closest("svg, label, button"))
    .map((node) => ({ node, box: node.getBoundingClientRect() })).filter(({ box }) => box.width > 1 && box.height > 1);
  const boxes = shown.map(({ box }) => box), up = closedUp(boxes), left = Math.min(...boxes.map((box) => box.left)) - 8;
  const width = Math.ceil(Math.max(...boxes.map(({ right }) => right)) - left + 8);
  const { color, fontFamily } = getComputedStyle(root);
  pen.font = `12px ${fontFamily}`;
  const lines = title ? wrapped(title, width - 16) : [],
    top = Math.min(...boxes.map((box) => box.top)) - 8 - LINE * lines.length;
  const height = Math.ceil(Math.max(...boxes.map(({ bottom }) => up(bottom))) - top + 8);
  const svg = drawn("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  drawn("rect", { width, height, fill: paperOf(root) }, svg);
  lines.forEach((line, at) =>
    drawn("text", { x: 8, y: LINE * (at + 1), fill: color, "font-size": "12px", "font-family": fontFamily }, svg, line)
  );
  for (const { node, box } of shown) {
    const place = { x: box.left - left, y: up(box.top) - top, width: box.width, height: box.height };
    if (node.tagName === "CANVAS") {
      drawn("image", { ...place, href: node.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" }, svg);
    } else if (node.classList.contains("ao-caption")) {
      for (const { said, x, y, color: fill, ...font } of piecesOf(node)) {
        const look = { "font-size": font.fontSize, "font-family": font.fontFamily, "font-weight": font.fontWeight };
        drawn("text", { x: x - left, y: y - box.top + place.y, fill, ...look }, svg, said);
      }
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

export async function save(root, name, kind, title) {
  const text = pictureOf(root, title);
  download(kind === "png" ? await asPng(text) : new Blob([text], { type: "image/svg+xml" }), `${name}.${kind}`);
}
