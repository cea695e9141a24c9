// Log: who changed what, when and why.

import { h, update } from '../dom.js';
import { get, query } from '../api.js';
import { count, counted } from '../format.js';
import { go, href } from '../router.js';
import { empty, eventId, load, moment, repeat, table } from '../parts.js';

const LIMIT = 100;
const EVERY = 10000; // ms
const TIMES = [['', 'Any time'], ['1h', 'Last hour'], ['24h', 'Last day'], ['7d', 'Last week']];
const seen = new Set(); // actions, which the filter offers

export function log(root, { box, query: asked }, signal) {
  const filter = { action: asked.get('action') || '', who: asked.get('who') || '', since: asked.get('since') || '' };
  const head = h('div', { class: 'view-head' });
  const fresh = h('div', {});
  const list = h('div', {});
  const more = h('div', { class: 'buttons' });
  root.append(head, fresh, list, more);
  let entries = [];
  const read = (until) => get(box, `log${query({ ...filter, until, limit: LIMIT })}`, { signal });

  /** Shows the entries; a full page may have another after it. */
  const draw = (found, full) => {
    entries = found;
    for (const { action } of entries) seen.add(action);
    update(head, h('h1', {}, 'Log'), form(box, filter));
    update(fresh);
    update(more, full && h('button', { type: 'button', onclick: next }, 'Show more'));
    return rows(box, entries, filter);
  };
  const next = async (event) => {
    event.currentTarget.disabled = true;
    try {
      const found = (await read(entries.at(-1).at)).entries;
      const older = found.filter((entry) => !entries.some((each) => keyOf(each) === keyOf(entry))); // the time of the last entry is read again
      update(list, draw([...entries, ...older], found.length === LIMIT && older.length > 0));
    } catch (error) {
      if (!signal.aborted) update(more, h('p', { class: 'wrong', role: 'alert' }, error.message), h('button', { type: 'button', onclick: next }, 'Try again'));
    }
  };
  update(head, h('h1', {}, 'Log'), form(box, filter));
  const again = load(list, signal, () => read(''), ({ entries: found }) => draw(found, found.length === LIMIT));
  repeat(signal, EVERY, async () => {
    const found = (await read('').catch(() => ({ entries: [] }))).entries;
    const number = found.filter((entry) => !entries.some((each) => keyOf(each) === keyOf(entry))).length;
    update(fresh, number > 0 && h('button', { type: 'button', class: 'fresh', onclick: () => again() }, `${counted(number, 'new entry', 'new entries')}: show ${number === 1 ? 'it' : 'them'}`));
  });
}

const keyOf = (entry) => JSON.stringify([entry.at, entry.action, entry.who, entry.why, entry.detail, entry.ids]);

function form(box, filter) {
  const option = (value, text, current) => h('option', { value, selected: value === current }, text);
  const actions = [...new Set([...seen, ...(filter.action ? [filter.action] : [])])].sort();
  const apply = (event) => {
    event.preventDefault();
    const { action, who, since } = event.currentTarget.elements;
    go(href(box, 'log', null, { action: action.value, who: who.value.trim(), since: since.value }));
  };
  return h('form', { class: 'inline', onsubmit: apply, onchange: apply },
    h('select', { name: 'action', 'aria-label': 'Action' }, option('', 'Every action', filter.action), actions.map((name) => option(name, name, filter.action))),
    h('input', { name: 'who', type: 'search', 'aria-label': 'Who', placeholder: 'Who', value: filter.who, autocomplete: 'off', size: 14 }),
    h('select', { name: 'since', 'aria-label': 'Time' }, TIMES.map(([value, text]) => option(value, text, filter.since))),
    h('button', { type: 'submit' }, 'Filter'));
}

function rows(box, entries, filter) {
  if (!entries.length) return Object.values(filter).some(Boolean) ? empty('No entry matches.', h('p', {}, h('a', { href: href(box, 'log') }, 'Show all'))) : empty('Nothing was changed by hand yet.', h('p', {}, 'Replays, drops, pauses and changed settings are recorded here, with who, when and why.'));
  return table('Log', [
    { title: 'When', class: 'nowrap', cell: (entry) => h('span', {}, moment(entry.at, { relative: false }), h('span', { class: 'remark' }, moment(entry.at))) },
    { title: 'Action', cell: (entry) => h('strong', {}, entry.action) },
    { title: 'Who', class: 'wrap', cell: (entry) => h('a', { href: href(box, 'log', null, { who: entry.who }) }, entry.who) },
    { title: 'Reason', cell: (entry) => entry.why || '–' },
    { title: 'Events', class: 'number', cell: (entry) => (entry.ids.length === 1 ? eventId(box, entry.ids[0]) : entry.count ? count(entry.count) : '–') },
    { title: 'Detail', class: 'error', cell: (entry) => entry.detail || '–' },
  ], entries, keyOf);
}
