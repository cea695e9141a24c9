// Elements from plain calls, and updates in place. Text is only ever inserted as text: no function here takes markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An HTML element. Properties that start with `on` are handlers; null, undefined and false leave an attribute out. */
export function h(name, properties, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** An SVG element. */
export function s(name, properties, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) {
      element[name] = value;
      (element.handlers ||= []).push(name);
    } else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(printable(String(child))));
  }
}

// Characters that are not seen but change what is: controls but tab and newline, and marks of direction.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** The text with such characters as escapes: a payload must not rearrange the words around it. */
export const printable = (text) => text.replace(UNSEEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`);

/**
 * Makes the children of `parent` equal to these. Elements that stay the same keep their identity, focus and selection: those with the same
 * `data-key`, wherever they are now, and others by their place.
 */
export function update(parent, ...children) {
  const fresh = document.createDocumentFragment();
  append(fresh, children);
  patchChildren(parent, fresh);
}

function patchChildren(old, fresh) {
  const wanted = new Set([...fresh.children].map(keyOf));
  const keyed = new Map();
  for (const child of [...old.children]) {
    if (keyOf(child) === null) continue;
    if (wanted.has(keyOf(child))) keyed.set(keyOf(child), child);
    else child.remove();
  }
  let at = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const same = keyOf(node) === null ? at : keyed.get(keyOf(node));
    keyed.delete(keyOf(node));
    if (same && same.nodeName === node.nodeName && keyOf(same) === keyOf(node)) {
      if (same !== at) bring(old, same, at);
      patch(same, node);
      at = same.nextSibling;
    } else if (at && keyOf(at) === null && keyOf(node) === null) {
      const next = at.nextSibling;
      at.replaceWith(node);
      at = next;
    } else old.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const keyOf = (node) => node.dataset?.key ?? null;

/** Puts a child before the child `at`. One that has the focus stays in place, and those before it move: a moved element loses the focus. */
function bring(parent, child, at) {
  if (!child.contains(document.activeElement)) {
    parent.insertBefore(child, at);
    return;
  }
  const after = child.nextSibling;
  for (let each = at; each !== child; ) {
    const next = each.nextSibling;
    parent.insertBefore(each, after);
    each = next;
  }
}

function patch(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.isEqualNode(fresh) && !old.handlers && !fresh.querySelector('button, a, input, [tabindex]')) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !belongsToReader(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && !belongsToReader(old, name)) old.setAttribute(name, value);
  }
  for (const name of old.handlers || []) old[name] = null;
  for (const name of fresh.handlers || []) old[name] = fresh[name];
  old.handlers = fresh.handlers;
  if (!old.built) patchChildren(old, fresh); // else it was built when the reader opened it
}

/** What the reader has opened stays open. */
function belongsToReader(element, attribute) {
  return attribute === 'open' && element.nodeName === 'DETAILS';
}
