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

/** Makes the children of `parent` equal to these. Elements that stay the same keep their identity, focus and selection. */
export function update(parent, ...children) {
  const fresh = document.createDocumentFragment();
  append(fresh, children);
  patchChildren(parent, fresh);
}

function patchChildren(old, fresh) {
  let at = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    if (at && alike(at, node)) {
      patch(at, node);
      at = at.nextSibling;
    } else if (at) {
      const next = at.nextSibling;
      at.replaceWith(node);
      at = next;
    } else old.append(node);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return false;
  return old.nodeType !== Node.ELEMENT_NODE || old.dataset.key === fresh.dataset.key;
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
  patchChildren(old, fresh);
}

/** What the reader has opened stays open. */
function belongsToReader(element, attribute) {
  return attribute === 'open' && element.nodeName === 'DETAILS';
}
