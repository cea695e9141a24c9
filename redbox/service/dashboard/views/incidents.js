// Incidents: errors as text with their counts, failures first.

import { h } from '../dom.js';
import { get, query } from '../api.js';
import { spark } from '../chart.js';
import { ago, compact, counted, time } from '../format.js';
import { href } from '../router.js';
import { empty, load, moment, repeat, steady, table } from '../parts.js';

const EVERY = 10000; // ms
const WINDOWS = [['', 'Any time'], ['1h', 'Last hour'], ['24h', 'Last day'], ['7d', 'Last week']];
const STATES = [['', 'All'], ['DEAD', 'Dead'], ['PENDING', 'Pending']];
const WORDS = { DEAD: ['✕', 'dead', 'bad'], PENDING: ['↻', 'pending', 'warn'] };

export function incidents(root, { box, query: asked }, signal) {
  const state = asked.get('state') || '';
  const since = asked.get('since') || '';
  const list = h('div', {});
  const tabs = (label, pairs, current, other) => h('div', { class: 'tabs', role: 'group', 'aria-label': label },
    pairs.map(([value, words]) => h('a', { href: href(box, 'incidents', null, other(value)), 'aria-current': value === current ? 'true' : null }, words)));
  root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Incidents'),
    tabs('State', STATES, state, (value) => ({ state: value, since })), tabs('Time', WINDOWS, since, (value) => ({ state, since: value }))), list);
  const again = load(list, signal, () => readIncidents(box, { state, since }, signal), (found) => incidentRows(box, found, list));
  repeat(signal, EVERY, () => again({ quiet: true }));
}

/** The error groups {groups, sampled, looked, counted_at, since} of all states or one, and of a time. */
export const readIncidents = async (box, filter, signal) => ({ ...await get(box, `error-groups${query(filter)}`, { signal }), since: filter.since });

/** Error groups as a table, with what their counts are made from. `root` is where they are shown. */
export function incidentRows(box, { groups, sampled, looked, counted_at: countedAt, since }, root) {
  if (!groups.length) return empty(since ? 'No incidents in this time.' : 'No incidents.', h('p', {}, 'Events that fail appear here, grouped by their error.'));
  const drawn = groups.some((group) => group.histogram?.length);
  const key = (group) => `${group.fingerprint}${group.state}`;
  const least = Boolean(since && sampled); // a search in a time stops after a number of events
  const rows = table('Incidents', [
    { title: 'Error', class: 'error', cell: (group) => h('a', { href: href(box, 'incident', group.group, { state: group.state }), 'data-row': true }, titleOf(group)) },
    { title: 'Events', class: 'nowrap', cell: (group) => countOf(box, group, least) },
    { title: 'Types', cell: (group) => typesOf(box, group) },
    drawn && { title: 'When', class: 'nowrap', cell: when },
    { title: 'Last', class: 'nowrap', cell: (group) => moment(group.last_seen) },
  ].filter(Boolean), steady(root, groups, key), key);
  return [rows, remark(sampled, countedAt, least && looked)];
}

/** The text of an error. An event can be dead without one. */
export const titleOf = (group) => group.error || '(no error text)';

function remark(sampled, countedAt, looked) {
  if (!sampled) return null;
  if (looked) return h('p', { class: 'remark' }, `Only the newest ${counted(looked, 'event')} were read: there may be more, with other errors too.`);
  return h('p', { class: 'remark' }, 'From a sample of the newest events: a rare error may be missing', countedAt && h('span', {}, `; last full count ${ago(countedAt)}`), '.');
}

/** When the events of a group failed, as a drawing. */
function when(group) {
  if (!group.histogram?.length) return '–';
  return h('span', { class: WORDS[group.state][2] }, spark(group.histogram, `${group.state === 'DEAD' ? 'Failures' : 'Last attempts'} from ${time(group.first_seen)} to ${time(group.last_seen)}`));
}

function countOf(box, group, least) {
  const [symbol, word, tone] = WORDS[group.state];
  return h('a', { class: tone, href: href(box, 'events', null, { state: group.state, group: group.group }), title: counted(group.count, 'event') },
    h('span', { 'aria-hidden': 'true' }, `${symbol} `), `${about(group, least)}${compact(group.count)} ${word}`);
}

/** What to write before the count of a group. */
export const about = (group, least = false) => (group.at_least ? 'at least ' : group.estimated ? 'about ' : least ? 'at least ' : '');

const typesOf = (box, group) => h('span', { class: 'types' }, group.event_types.slice(0, 3).map((type, index) => [index > 0 && ', ',
  h('a', { href: href(box, 'events', null, { state: group.state, group: group.group, type }) }, type)]), group.event_types.length > 3 && ', …');
