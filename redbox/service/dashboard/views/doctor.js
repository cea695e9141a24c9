// Doctor: what is wrong with the box and its server, and what to do about it.

import { h } from '../dom.js';
import { get } from '../api.js';
import { command, empty, load, prose } from '../parts.js';

const SEVERITIES = { error: ['✕', 'Error', 'bad'], warning: ['!', 'Warning', 'warn'], info: ['i', 'Information', 'accent'], ok: ['✓', 'Fine', 'good'] };
const ORDER = Object.keys(SEVERITIES);

/** A remedy: a command, with the words that follow it, or words alone. */
function remedy(text) {
  const [, line, rest] = /^((?:redbox|redis-cli) [^,;]+)(.*)$/s.exec(text) || [];
  return line ? [command(line), prose(rest, { capital: false })] : prose(text, { capital: false });
}

export function doctor(root, { box }, signal) {
  const list = h('div', {});
  const again = load(list, signal, () => get(box, 'doctor', { signal }), (found) => findings(Array.isArray(found) ? found : found.findings));
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
