// Doctor: what is wrong with the box and its server, and what to do about it.

import { h } from '../dom.js';
import { get } from '../api.js';
import { counted } from '../format.js';
import { command, empty, load, prose, repeat } from '../parts.js';

const EVERY = 60000; // ms: a check audits a sample of the events

const SEVERITIES = { error: ['✕', 'Error', 'bad'], warning: ['!', 'Warning', 'warn'], info: ['i', 'Information', 'accent'], ok: ['✓', 'Fine', 'good'] };
const ORDER = Object.keys(SEVERITIES);

/** A remedy: words, and commands between backticks. */
const remedy = (text) => text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? command(part) : part));

export function doctor(root, { box }, signal) {
  const list = h('div', {});
  const again = load(list, signal, () => get(box, 'doctor', { signal }), ({ findings: found }) => findings(found));
  repeat(signal, EVERY, () => again({ quiet: true }));
  root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Doctor'), h('button', { type: 'button', onclick: () => again() }, 'Check again')),
    h('p', { class: 'muted' }, 'Checks the server, the settings, the relays and a sample of the events. It changes nothing.'), list);
}

/** How many findings need someone. */
function inWords(found) {
  const number = (severity) => found.filter((each) => each.severity === severity).length;
  const wrong = ['error', 'warning'].filter(number).map((severity) => counted(number(severity), severity));
  const tone = number('error') ? 'bad' : number('warning') ? 'warn' : 'good';
  return h('p', { class: `summary ${tone}` }, wrong.length ? `${wrong.join(' and ')}.` : 'No errors and no warnings.');
}

/** What is wrong, each with what to do; then, in one card, all that is fine. */
function findings(found) {
  if (!found.length) return empty('Nothing is wrong.');
  const fine = found.filter((each) => each.severity === 'ok');
  const sorted = found.filter((each) => each.severity !== 'ok').sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  return [inWords(found), h('ul', { class: 'findings' }, sorted.map(({ severity, sentence, meaning, remedy: what }) => card(severity,
    h('p', { class: 'finding-sentence' }, prose(sentence)), meaning && h('p', { class: 'muted' }, prose(meaning)), what && h('p', {}, '→ ', remedy(what)))),
  fine.length > 0 && card('ok', h('ul', {}, fine.map(({ sentence }) => h('li', {}, prose(sentence))))))];
}

function card(severity, ...content) {
  const [symbol, word, tone] = SEVERITIES[severity] || ['■', severity, 'warn'];
  return h('li', { class: `finding finding-${tone}` }, h('span', { class: `finding-mark ${tone}` }, h('span', { 'aria-hidden': 'true' }, `${symbol} `), word), h('div', {}, content));
}
