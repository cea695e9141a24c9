// Log: who changed what, when and why.

import { h } from '../dom.js';
import { get, query } from '../api.js';
import { count } from '../format.js';
import { go, href } from '../router.js';
import { empty, eventId, load, moment, table } from '../parts.js';

const ACTIONS = ['replay', 'drop', 'kill', 'release', 'reschedule', 'pause', 'resume', 'configure', 'repair'];
const LIMIT = 100;

export function log(root, { box, query: asked }, signal) {
  const filter = { action: asked.get('action') || '', who: asked.get('who') || '', since: asked.get('since') || '' };
  const list = h('div', {});
  root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Log'), form(box, filter)), list);
  load(list, signal, () => get(box, `log${query({ ...filter, limit: LIMIT })}`, { signal }), ({ entries }) => rows(box, entries, filter));
}

function form(box, filter) {
  const option = (value, text, current) => h('option', { value, selected: value === current }, text);
  const action = h('select', { 'aria-label': 'Action' }, option('', 'Every action', filter.action), ACTIONS.map((name) => option(name, name, filter.action)));
  const since = h('select', { 'aria-label': 'Time' }, [['', 'Any time'], ['1h', 'Last hour'], ['24h', 'Last day'], ['7d', 'Last week']].map(([value, text]) => option(value, text, filter.since)));
  const who = h('input', { type: 'search', 'aria-label': 'Who', placeholder: 'Who', value: filter.who, autocomplete: 'off', size: 14 });
  const apply = () => go(href(box, 'log', null, { action: action.value, who: who.value.trim(), since: since.value }));
  action.onchange = apply;
  since.onchange = apply;
  return h('form', {
    class: 'inline',
    onsubmit: (event) => {
      event.preventDefault();
      apply();
    },
  }, action, who, since, h('button', { type: 'submit' }, 'Filter'));
}

function rows(box, entries, filter) {
  if (!entries.length) return Object.values(filter).some(Boolean) ? empty('No entry matches.', h('p', {}, h('a', { href: href(box, 'log') }, 'Show all'))) : empty('Nothing was changed by hand yet.', h('p', {}, 'Replays, drops, pauses and changed settings are recorded here, with who, when and why.'));
  return table('Log', [
    { title: 'When', class: 'nowrap', cell: (entry) => moment(entry.at) },
    { title: 'Action', cell: (entry) => h('strong', {}, entry.action) },
    { title: 'Who', class: 'wrap', cell: (entry) => h('a', { href: href(box, 'log', null, { who: entry.who }) }, entry.who) },
    { title: 'Reason', cell: (entry) => entry.why || '–' },
    { title: 'Events', class: 'number', cell: (entry) => (entry.ids.length === 1 ? eventId(box, entry.ids[0]) : entry.count ? count(entry.count) : '–') },
    { title: 'Detail', class: 'error', cell: (entry) => entry.detail || '–' },
  ], entries, (entry) => `${entry.at}${entry.action}${entry.who}`);
}
