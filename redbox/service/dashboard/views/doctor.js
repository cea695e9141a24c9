// Doctor: what is wrong with the box and its server, and what to do about it.

import { h } from '../dom.js';
import { get } from '../api.js';
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

function findings(found) {
  if (!found.length) return empty('Nothing is wrong.');
  const sorted = [...found].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  return h('ul', { class: 'findings' }, sorted.map((finding) => {
    const [symbol, word, tone] = SEVERITIES[finding.severity] || ['■', finding.severity, 'warn'];
    return h('li', { class: `finding finding-${tone}` },
      h('span', { class: `finding-mark ${tone}` }, h('span', { 'aria-hidden': 'true' }, `${symbol} `), word),
      h('div', {}, h('p', { class: 'finding-sentence' }, prose(finding.sentence)), finding.meaning && h('p', { class: 'muted' }, prose(finding.meaning)),
        finding.remedy && h('p', {}, '→ ', remedy(finding.remedy))));
  }));
}
