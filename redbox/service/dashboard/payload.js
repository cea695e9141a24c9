// Payloads: JSON as a tree that folds, other content as text, and two payloads side by side with what differs.

import { ExactNumber } from './api.js';
import { h, update } from './dom.js';
import { copyButton } from './parts.js';
import { count, counted } from './format.js';

const FOLDED = 30; // members from which a nested value is folded
const MOST = 500; // members of one value that are shown
const LONGEST = 400; // characters of a text that are shown at once

export function kindOf(value) {
  if (value === null) return 'null';
  if (value instanceof ExactNumber) return 'number';
  if (Array.isArray(value)) return 'list';
  return { string: 'text', number: 'number', boolean: 'true or false', object: 'object' }[typeof value] || 'nothing';
}

const plain = (value) => (value instanceof ExactNumber ? value.source : JSON.stringify(value));

/** The JSON text, with every digit as it was. */
export function jsonText(value, indent = '') {
  const inner = `${indent}  `;
  if (kindOf(value) === 'list') {
    return value.length ? `[\n${value.map((each) => inner + jsonText(each, inner)).join(',\n')}\n${indent}]` : '[]';
  }
  if (kindOf(value) === 'object') {
    const members = Object.entries(value).map(([name, each]) => `${inner}${JSON.stringify(name)}: ${jsonText(each, inner)}`);
    return members.length ? `{\n${members.join(',\n')}\n${indent}}` : '{}';
  }
  return plain(value);
}

/** The payload of a record: decoded if it is JSON, as text, or as base64. */
export function payload(record) {
  if (record.problem) return h('p', { class: 'wrong' }, record.problem);
  const { payload: content, payload_base64: encoded, content_type: type } = record;
  const json = type.includes('json');
  const bytes = content === null && encoded ? Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0)) : null;
  if (bytes && !(json && textOf(bytes)?.trim() === 'null')) return undecoded(bytes, encoded, json ? 'that are not JSON' : `of ${type}`);
  if (typeof content === 'string' && !json) return h('div', { class: 'payload' }, copyButton(content, 'payload'), h('div', { class: 'plain' }, long(content)));
  return h('div', { class: 'payload' }, copyButton(() => jsonText(content), 'payload'), tree(content));
}

/** Bytes that the service could not decode: as text if they are one, or as base64. */
function undecoded(bytes, encoded, kind) {
  const text = textOf(bytes);
  return h('div', { class: 'payload' }, copyButton(text ?? encoded, 'payload'),
    h('p', { class: 'muted' }, `${counted(bytes.length, 'byte')} ${kind}${text === null ? ', as base64' : ''}:`), h('div', { class: 'plain' }, long(text ?? encoded)));
}

function textOf(bytes) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** A text; the rest of a long one is folded. */
function long(text) {
  if (text.length <= LONGEST) return text;
  return [`${text.slice(0, LONGEST)}…`, h('details', {}, h('summary', {}, `${count(text.length - LONGEST)} more characters`), text.slice(LONGEST))];
}

/** A value as a tree, whose levels are built when they are opened. `marks(path)` names the class of a member that differs. */
export function tree(value, marks = () => null, path = [], name = null) {
  const label = name === null ? null : h('span', { class: 'json-name' }, `${typeof name === 'number' ? name : JSON.stringify(name)}: `);
  const mark = marks(path);
  const kind = kindOf(value);
  if (kind !== 'list' && kind !== 'object') {
    return h('div', { class: `json ${mark || ''}` }, label, h('span', { class: `json-${kind === 'text' ? 'text' : 'plain'}` }, long(plain(value) ?? '')));
  }
  const members = kind === 'list' ? value.map((each, index) => [index, each]) : Object.entries(value);
  const [open, close] = kind === 'list' ? ['[', ']'] : ['{', '}'];
  if (!members.length) return h('div', { class: `json ${mark || ''}` }, label, open + close);
  const hidden = members.length - MOST;
  const build = () => [members.slice(0, MOST).map(([key, each]) => tree(each, marks, [...path, key], key)), hidden > 0 && h('p', { class: 'muted' }, `and ${count(hidden)} more`)];
  const unfolded = members.length < FOLDED && path.length < 6;
  const ontoggle = (event) => {
    const inner = event.currentTarget.querySelector(':scope > .json-members');
    if (inner.firstChild) return;
    update(inner, build());
    inner.built = true; // an update leaves it as it is
  };
  return h('details', { class: `json ${mark || ''}`, open: unfolded, ontoggle },
    h('summary', {}, label, open, h('span', { class: 'json-count' }, ` ${counted(members.length, kind === 'list' ? 'item' : 'field')} ${close}`)),
    h('div', { class: 'json-members' }, unfolded && build()), h('div', { class: 'json-close' }, close));
}

/** What differs between two values: [{path, kind: 'type'|'missing'|'extra'|'value', words}]; kinds of shape come first. */
export function differences(failed, delivered, path = [], found = []) {
  const [left, right] = [kindOf(failed), kindOf(delivered)];
  const name = path.length ? path.join('.') : 'the payload';
  if (left !== right) found.push({ path, kind: 'type', words: `${name} is ${article(left)}; in the delivered event it is ${article(right)}` });
  else if (left === 'object') {
    for (const key of new Set([...Object.keys(failed), ...Object.keys(delivered)])) {
      const inner = [...path, key];
      if (!Object.hasOwn(delivered, key)) found.push({ path: inner, kind: 'extra', words: `${inner.join('.')} is only in the failed event` });
      else if (!Object.hasOwn(failed, key)) found.push({ path: inner, kind: 'missing', words: `${inner.join('.')} is missing in the failed event` });
      else differences(failed[key], delivered[key], inner, found);
    }
  } else if (left === 'list') {
    for (let index = 0; index < Math.min(failed.length, delivered.length, MOST); index += 1) differences(failed[index], delivered[index], [...path, index], found);
    if (failed.length !== delivered.length) found.push({ path, kind: 'value', words: `${name} has another length` });
  } else if (plain(failed) !== plain(delivered)) found.push({ path, kind: 'value', words: `${name} has another value` });
  return found;
}

const article = (kind) => ({ list: 'a list', object: 'an object', text: 'text', number: 'a number', null: 'null' })[kind] || kind;

/** The failed payload beside the delivered one. */
export function sideBySide(failed, delivered) {
  const comparable = delivered && failed.payload !== null && typeof failed.payload === typeof delivered.payload;
  const found = comparable ? differences(failed.payload, delivered.payload) : [];
  const byPath = new Map(found.map((each) => [JSON.stringify(each.path), each.kind]));
  const marks = (path) => {
    const kind = byPath.get(JSON.stringify(path));
    return kind && (kind === 'value' ? 'differs-value' : 'differs');
  };
  const shape = found.filter((each) => each.kind !== 'value');
  const column = (title, record, mark) => h('div', { class: 'side' }, h('h3', {}, title), comparable ? h('div', { class: 'payload', 'data-key': record.event_id }, tree(record.payload, mark)) : payload(record));
  return h('div', {},
    shape.length > 0 && h('ul', { class: 'differences' }, shape.slice(0, 8).map((each) => h('li', {}, each.words, '.'))),
    comparable && !shape.length && h('p', { class: 'muted' }, 'Both payloads have the same fields and types; only values differ.'),
    h('div', { class: 'sides' }, column('Failed', failed, marks),
      delivered ? column('Delivered', delivered, marks) : h('div', { class: 'side' }, h('h3', {}, 'Delivered'), h('p', { class: 'muted' }, 'No delivered event of this type is stored.'))));
}
