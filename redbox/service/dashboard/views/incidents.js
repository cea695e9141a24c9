// Incidents: errors as text with their counts, failures first.

import { h } from '../dom.js';
import { get, query } from '../api.js';
import { spark } from '../chart.js';
import { compact, counted, time } from '../format.js';
import { href } from '../router.js';
import { empty, load, moment, table } from '../parts.js';

const WINDOWS = [['', 'All'], ['1h', 'Last hour'], ['24h', 'Last day'], ['7d', 'Last week']];
const STATES = [['DEAD', 'Dead'], ['PENDING', 'Retrying']];
const WORDS = { DEAD: ['✕', 'dead', 'bad'], PENDING: ['↻', 'retrying', 'warn'] };

export function incidents(root, { box, query: asked }, signal) {
  const state = asked.get('state') || 'DEAD';
  const since = asked.get('since') || '';
  const list = h('div', {});
  const tabs = (label, pairs, current, other) => h('div', { class: 'tabs', role: 'group', 'aria-label': label },
    pairs.map(([value, words]) => h('a', { href: href(box, 'incidents', null, other(value)), 'aria-current': value === current ? 'true' : null }, words)));
  root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Incidents'),
    tabs('State', STATES, state, (value) => ({ state: value, since })), tabs('Time', WINDOWS, since, (value) => ({ state, since: value }))), list);
  const again = load(list, signal, () => get(box, `error-groups${query({ state, since })}`, { signal }), ({ groups }) => incidentRows(box, groups));
  const timer = setInterval(() => !document.hidden && again({ quiet: true }), 10000);
  signal.addEventListener('abort', () => clearInterval(timer));
}

/** Error groups as a table. */
export function incidentRows(box, groups) {
  if (!groups.length) return empty('No incidents.', h('p', {}, 'Events that fail appear here, grouped by their error.'));
  const drawn = groups.some((group) => group.histogram?.length);
  return table('Incidents', [
    { title: 'Error', class: 'error', cell: (group) => h('a', { href: href(box, 'incident', group.group || group.fingerprint, { state: group.state }), 'data-row': true }, group.error || group.example || group.fingerprint) },
    { title: 'Events', class: 'nowrap', cell: (group) => countOf(box, group) },
    { title: 'Types', cell: (group) => h('span', { class: 'types' }, typesOf(group)) },
    drawn && { title: 'When', class: 'nowrap', cell: when },
    { title: 'Last', class: 'nowrap', cell: (group) => moment(group.last_seen) },
  ].filter(Boolean), groups, (group) => `${group.fingerprint}${group.state}`);
}

/** When the events of a group failed, as a drawing. */
function when(group) {
  if (!group.histogram?.length) return '–';
  return h('span', { class: (WORDS[group.state] || [])[2] }, spark(group.histogram, `Failures from ${time(group.first_seen)} to ${time(group.last_seen)}`));
}

function countOf(box, group) {
  const [symbol, word, tone] = WORDS[group.state] || ['■', '', 'warn'];
  return h('a', { class: tone, href: href(box, 'events', null, { state: group.state, group: group.group || group.fingerprint }), title: counted(group.count, 'event') },
    h('span', { 'aria-hidden': 'true' }, `${symbol} `), `${compact(group.count)} ${word}`);
}

const typesOf = (group) => `${group.event_types.slice(0, 3).join(', ')}${group.event_types.length > 3 ? ', …' : ''}`;
