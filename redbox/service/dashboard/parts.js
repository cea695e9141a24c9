// Parts that several views share: phases, ids, times, tables, explanations, and what is shown while or instead of data.

import { h, s, update } from './dom.js';
import * as format from './format.js';
import { hasToken } from './api.js';
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

const WAITING = PHASES.find(({ name }) => name === 'WAITING');
const UNKNOWN = { label: 'Damaged', symbol: '!', name: 'DAMAGED' };

export function phase(record) {
  const found = (record.damaged ? null : PHASES.find((each) => each.name === record.phase)) || UNKNOWN;
  const { name, label, symbol } = record.waiting ? WAITING : found;
  return h('span', { class: `phase phase-${name.toLowerCase()}` }, h('span', { 'aria-hidden': 'true' }, symbol), ` ${label}`);
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

/** A button that copies the whole text, which may be a function that makes it. */
export function copyButton(source, what) {
  const made = typeof source === 'function';
  const copy = async () => {
    const text = made ? source() : source;
    try {
      await navigator.clipboard.writeText(text);
      announce(`Copied the ${what}.`);
    } catch {
      announce(`The browser does not allow copying. The ${what} is ${format.shortened(text)}`);
    }
  };
  return h('button', { type: 'button', class: 'copy', title: `Copy the ${what}`, 'aria-label': `Copy the ${what}${made ? '' : ` ${format.shortId(source)}`}`, onclick: copy },
    s('svg', { viewBox: '0 0 16 16', width: 14, height: 14, 'aria-hidden': 'true' }, s('path', { class: 'copy-icon', d: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z' })));
}

/** A shortened id that links to its event, with a button that copies it. */
export function eventId(box, id, { row = false } = {}) {
  return h('span', { class: 'id' },
    h('a', { href: href(box, 'event', id), title: id, 'data-row': row }, format.shortId(id)), copyButton(id, 'event id'));
}

/** A command for a shell, with a button that copies it. */
export const command = (text) => h('span', { class: 'command' }, h('code', {}, text), copyButton(text, 'command'));

/** A command that puts an event into the box. */
export function putCommand(box) {
  const token = hasToken() ? "-H 'Authorization: Bearer TOKEN' " : '';
  return command(`curl ${token}-d '{"event_type": "user.created", "payload": {"id": 42}}' ${location.origin}/v1/boxes/${encodeURIComponent(box)}/events`);
}

/**
 * A table; on a narrow screen each row is a card, and the roles say that it is still a table. A column is {title, cell, class?}; `key` names a row so that updates keep it.
 */
export function table(label, columns, rows, key) {
  return h('div', { class: 'table' },
    h('table', { role: 'table', 'aria-label': label },
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, columns.map((column) => h('th', { role: 'columnheader', scope: 'col', class: column.class }, column.title)))),
      h('tbody', { role: 'rowgroup' }, rows.map((row) => h('tr', { role: 'row', 'data-key': key(row) },
        columns.map((column) => cellOf(column, row)))))));
}

/** A cell; one without a value is left out of a card. */
function cellOf(column, row) {
  const cell = h('td', { role: 'cell', class: column.class, 'data-label': column.title }, column.class === 'error' ? h('div', { class: 'clamp' }, column.cell(row)) : column.cell(row));
  if (!cell.childNodes.length || cell.textContent === '–') cell.classList.add('none');
  return cell;
}

/** The rows, in the order in which `root` shows them as long as the pointer or the focus is in it: nothing moves under the reader. */
export function steady(root, rows, key) {
  if (!root.matches(':hover, :focus-within')) return rows;
  const shown = [...root.querySelectorAll('tr[data-key]')].map((row) => row.dataset.key);
  const place = (row) => (shown.includes(key(row)) ? shown.indexOf(key(row)) : shown.length);
  return [...rows].sort((a, b) => place(a) - place(b));
}

export function section(title, aside, ...children) {
  return h('section', { class: 'section' }, h('div', { class: 'section-head' }, h('h2', {}, title), aside), children);
}

const AGAIN = 3000; // ms until what failed for a while is read again
const ID = /([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/;

/** A sentence as the service wrote it: with a capital, what is between backticks as code, and with a box the ids of its events as links. */
export function prose(text, { capital = true, box = null } = {}) {
  const begins = capital && !/^[a-z+]+:/.test(text); // a URL stays as it is
  const parts = (begins ? text.charAt(0).toUpperCase() + text.slice(1) : text).split(/`([^`]+)`/);
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
    (again === null || passes(problem)) && h('p', { class: 'muted' }, 'This page tries again by itself.', problem.status === 503 && ' Events that were acknowledged are in the store.'),
    again && h('button', { type: 'button', onclick: again }, 'Try again'));
}

/** Whether a problem may end by itself: the store, or the service, does not answer. */
const passes = (problem) => problem.status === 503 || problem.status === 0;

/** Calls `again` a little later, if the problem may have ended by then; returns the function that prevents it. */
export function tryAgain(signal, problem, again) {
  if (!passes(problem)) return () => {};
  const timer = setInterval(() => {
    if (document.hidden) return;
    clearInterval(timer);
    if (!signal.aborted) again();
  }, AGAIN);
  const end = () => clearInterval(timer);
  signal.addEventListener('abort', end);
  return end;
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
  let failed = false; // what failed is shown
  let cancel = () => {};
  let number = 0; // of readings: an answer that comes after that of a later reading is not shown
  const run = async ({ quiet = false } = {}) => {
    const own = (number += 1);
    cancel();
    if (!quiet) {
      update(root, loading());
    }
    try {
      const data = await read();
      if (own !== number) return;
      failed = false;
      if (!signal.aborted) update(root, render(data));
    } catch (error) {
      if (error.name === 'AbortError' || signal.aborted || own !== number) return;
      if (!quiet) update(root, failure(error, () => run()));
      failed ||= !quiet;
      if (failed) cancel = tryAgain(signal, error, () => run({ quiet: true }));
      if (error.status === undefined) throw error;
    }
  };
  run();
  return run;
}

/** Reads again every `every` ms while the page is seen, and when it is seen again; until the view is left. */
export function repeat(signal, every, read) {
  const seen = () => !document.hidden && read();
  const timer = setInterval(seen, every);
  document.addEventListener('visibilitychange', seen, { signal });
  signal.addEventListener('abort', () => clearInterval(timer));
}

/** How each situation of `why` is coloured. */
const SITUATIONS = {
  flowing: 'ok', published: 'ok', scheduled: 'ok', empty: 'ok', claimed: 'ok', queued: 'ok',
  backlog: 'warn', ramping: 'warn', limit_reached: 'warn', retry_scheduled: 'warn', waiting: 'warn', superseded: 'warn', suspect: 'warn', removed: 'warn', unknown: 'warn',
  dead: 'bad', damaged: 'bad', lost: 'bad', lease_expired: 'bad', paused: 'bad', key_paused: 'bad', no_relay: 'bad', breaker_open: 'bad',
  store_refuses_writes: 'bad', blocked: 'bad', failing: 'bad', stalled: 'bad', box_full: 'bad',
};

/** `ok`, `warn` or `bad`; `warn` for a situation of a newer service. */
export const mood = (situation) => SITUATIONS[situation] || 'warn';
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
