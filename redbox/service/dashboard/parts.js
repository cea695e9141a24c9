// Parts that several views share: phases, ids, times, tables, explanations, and what is shown while or instead of data.

import { h, s, update } from './dom.js';
import * as format from './format.js';
import { href } from './router.js';
import { announce } from './dialogs.js';

/** The phases as the page shows them, in the order of an event's life; `query` selects their events. */
export const PHASES = [
  { name: 'SCHEDULED', label: 'Scheduled', symbol: '◷', query: { phase: 'SCHEDULED' } },
  { name: 'AVAILABLE', label: 'Available', symbol: '○', query: { phase: 'AVAILABLE' } },
  { name: 'IN_FLIGHT', label: 'In flight', symbol: '▶', query: { phase: 'IN_FLIGHT' } },
  { name: 'RETRY_SCHEDULED', label: 'Retry', symbol: '↻', query: { phase: 'RETRY_SCHEDULED' } },
  { name: 'WAITING', label: 'Waiting', symbol: '⋯', query: { phase: 'WAITING' } },
  { name: 'DEAD', label: 'Dead', symbol: '✕', query: { state: 'DEAD' } },
  { name: 'COMPLETED', label: 'Published', symbol: '✓', query: { state: 'PUBLISHED' } },
];

const UNKNOWN = { label: 'Damaged', symbol: '!', name: 'DAMAGED' };

export function phase(record) {
  const found = (record.damaged ? null : PHASES.find((each) => each.name === record.phase)) || UNKNOWN;
  const word = record.waiting ? 'Waiting' : found.label;
  return h('span', { class: `phase phase-${found.name.toLowerCase()}` }, h('span', { 'aria-hidden': 'true' }, record.waiting ? '⋯' : found.symbol), ` ${word}`);
}

/** A moment: relative or as local time, with the exact one as its tooltip. */
export function moment(at, { relative = true, exact = false } = {}) {
  if (!at) return h('span', { class: 'muted' }, '–');
  const text = relative ? format.ago(at) : format.time(at, { exact });
  return h('time', { datetime: at, title: at, 'data-relative': relative }, text);
}

setInterval(() => {
  if (document.hidden) return;
  for (const each of document.querySelectorAll('time[data-relative]')) {
    const text = format.ago(each.dateTime);
    if (each.textContent !== text) each.textContent = text;
  }
}, 5000);

/** A button that copies the whole text. */
export function copyButton(text, what) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce(`Copied the ${what}.`);
    } catch {
      announce(`The browser does not allow to copy. The ${what} is ${text}`);
    }
  };
  return h('button', { type: 'button', class: 'copy', title: `Copy the ${what}`, 'aria-label': `Copy the ${what} ${format.shortId(text)}`, onclick: copy },
    s('svg', { viewBox: '0 0 16 16', width: 14, height: 14, 'aria-hidden': 'true' }, s('path', { class: 'copy-icon', d: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z' })));
}

/** A shortened id that links to its event, with a button that copies it. */
export function eventId(box, id, { row = false } = {}) {
  return h('span', { class: 'id' },
    h('a', { href: href(box, 'event', id), title: id, 'data-row': row }, format.shortId(id)), copyButton(id, 'event id'));
}

/** A command for a shell, with a button that copies it. */
export const command = (text) => h('span', { class: 'command' }, h('code', {}, text), copyButton(text, 'command'));

/**
 * A table; on a narrow screen each row is a card. A column is {title, cell, class?}; `key` names a row so that updates keep it.
 */
export function table(label, columns, rows, key) {
  return h('div', { class: 'table' },
    h('table', { 'aria-label': label },
      h('thead', {}, h('tr', {}, columns.map((column) => h('th', { scope: 'col', class: column.class }, column.title)))),
      h('tbody', {}, rows.map((row) => h('tr', { 'data-key': key(row) },
        columns.map((column) => h('td', { class: column.class, 'data-label': column.title }, column.cell(row))))))));
}

export function section(title, aside, ...children) {
  return h('section', { class: 'section' }, h('div', { class: 'section-head' }, h('h2', {}, title), aside), children);
}

const ID = /([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/;

/** A sentence as the service wrote it: with a capital, what is between backticks as code, and with a box the ids of its events as links. */
export function prose(text, { capital = true, box = null } = {}) {
  const parts = (capital ? text.charAt(0).toUpperCase() + text.slice(1) : text).split(/`([^`]+)`/);
  return parts.map((part, index) => (index % 2 ? h('code', {}, part) : box === null ? part : linked(part, box)));
}

const linked = (text, box) => text.split(ID).map((part, index) => (index % 2 ? h('a', { href: href(box, 'event', part), title: part }, format.shortId(part)) : part));

/** What would be here, and how to get it. */
export const empty = (title, ...children) => h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), children);

export const loading = () => h('p', { class: 'loading', role: 'status' }, 'Loading…');

/** What failed, in the words of the service, and a button to try again; `again` is null if that happens by itself. */
export function failure(problem, again) {
  return h('div', { class: 'failure', role: 'alert' },
    h('p', { class: 'failure-title' }, h('span', { 'aria-hidden': 'true' }, '✕ '), titleOf(problem)),
    h('p', {}, prose(problem.message)),
    again === null && h('p', { class: 'muted' }, 'This page tries again by itself.', problem.status === 503 && ' Events that were acknowledged are in the store.'),
    again && h('button', { type: 'button', onclick: again }, 'Try again'));
}

function titleOf(problem) {
  if (problem.status === 503) return 'The store does not answer';
  if (problem.status === 404) return 'Not found';
  if (problem.status === 403) return 'Not allowed with this token';
  if (problem.status) return problem.title || 'The request failed';
  return problem.title || 'This page failed';
}

/** Loads data into an element: `Loading…`, then the result of `render`, or what failed. Returns the function that loads again. */
export function load(root, signal, read, render) {
  const run = async ({ quiet = false } = {}) => {
    if (!quiet) {
      update(root, loading());
    }
    try {
      const data = await read();
      if (!signal.aborted) update(root, render(data));
    } catch (error) {
      if (error.name === 'AbortError' || signal.aborted) return;
      if (!quiet) update(root, failure(error, () => run()));
      if (error.status === undefined) throw error;
    }
  };
  run();
  return run;
}

const GOOD = ['flowing', 'published', 'scheduled', 'empty', 'claimed', 'queued'];
const FAIR = ['backlog', 'ramping', 'retry_scheduled', 'waiting', 'superseded', 'suspect', 'removed'];

/** `ok`, `warn` or `bad`: how a situation of `why` is coloured. */
export const mood = (situation) => (GOOD.includes(situation) ? 'ok' : FAIR.includes(situation) ? 'warn' : 'bad');
export const MOODS = { ok: { symbol: '✓', word: 'OK' }, warn: { symbol: '!', word: 'Attention' }, bad: { symbol: '✕', word: 'Problem' } };

/**
 * An explanation of `why`: the first sentence large, the others, and the next steps as commands. They are folded, since the page can do the
 * same; only what it cannot do, to start a relay, is open.
 */
export function explanation(why, box, { tone = mood(why.situation), actions = [], links = [] } = {}) {
  const [first, ...others] = why.sentences;
  const steps = why.next_steps;
  return h('div', { class: `why why-${tone}` },
    h('span', { class: 'why-mark', role: 'img', 'aria-label': MOODS[tone].word }, MOODS[tone].symbol),
    h('div', { class: 'why-text' },
      h('p', { class: 'why-first' }, prose(first, { box })),
      others.length > 0 && h('p', {}, prose(others.join(' '), { box })),
      links.length > 0 && h('p', { class: 'why-links' }, links),
      steps.length > 0 && h('details', { open: steps.some((step) => / relay /.test(step.command)) }, h('summary', {}, 'On the command line'),
        h('ul', { class: 'steps' }, steps.map((step) => h('li', {}, `To ${step.purpose}: `, command(step.command)))))),
    actions.length > 0 && h('div', { class: 'why-actions' }, actions));
}

/** Names and values. */
export function facts(pairs) {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined && value !== '');
  return h('dl', { class: 'facts' }, given.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}
