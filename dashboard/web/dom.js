// SPDX-License-Identifier: Apache-2.0
// Making and changing elements. Names come from strangers, so all text goes in as text: nothing
// here, or anywhere in the page, reads markup from a string.

/** An element with attributes and children. Functions become listeners ("onclick"). */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (typeof value === "function") node.addEventListener(name.slice(2), value);
  else node.setAttribute(name, value === true ? "" : String(value));
}

/** Changes what differs only, so that an update without news costs nothing. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
export function setAttr(node, name, value) {
  const wanted = value === null || value === false ? null : value === true ? "" : String(value);
  if (node.getAttribute(name) === wanted) return;
  if (wanted === null) node.removeAttribute(name);
  else node.setAttribute(name, wanted);
}
export function setVar(node, name, value) {
  if (node.style.getPropertyValue(name) !== String(value)) node.style.setProperty(name, value);
}

/**
 * Makes `parent`'s children those of `rows`, in their order. An element lives as long as its key,
 * so focus and selection stay where they are.
 */
export function keyed(parent, rows, keyOf, make, update) {
  const known = (parent.keyedRows ??= new Map());
  const wanted = new Set();
  let at = parent.firstElementChild;
  for (const row of rows) {
    const key = keyOf(row);
    wanted.add(key);
    let node = known.get(key);
    if (!node) {
      node = make(row);
      known.set(key, node);
    }
    update(node, row);
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  for (const [key, node] of known) {
    if (wanted.has(key)) continue;
    node.remove();
    known.delete(key);
  }
}

/** A table's row of cells. */
export function row(cells, kind = "td") {
  return el("tr", {}, ...cells.map((cell) => el(kind, kind === "th" ? { scope: "col" } : {}, cell)));
}

/** A list of terms and what they are. */
export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [term, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("div", {}, el("dt", {}, term), el("dd", {}, value)));
  }
  return list;
}
