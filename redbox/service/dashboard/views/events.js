// Events: search, filters as chips with completion, and actions on all events that match.

import { h, update } from '../dom.js';
import { get, query, segment } from '../api.js';
import { counted, shortId } from '../format.js';
import { go, href } from '../router.js';
import { mayOperate, state, watch } from '../store.js';
import { PHASES, empty, eventId, failure, loading, moment, phase, putCommand, table, tryAgain } from '../parts.js';
import { BULK_ACTIONS, actOnMany } from '../jobs.js';
import { EVENT_ACTIONS, actOnEvent } from '../actions.js';
import { FILTERS, filterField } from '../filters.js';

const LIMIT = 50;
const FIELDS = ['state', 'phase', ...Object.keys(FILTERS)];
const REPLAY = EVENT_ACTIONS.find((action) => action.name === 'replay');
/** Actions on all that match, by what is selected; without a state it would not be clear what they mean. */
const ACTIONS = { DEAD: ['replay', 'export', 'drop'], PUBLISHED: ['replay', 'export'], SCHEDULED: ['reschedule', 'kill'], AVAILABLE: ['reschedule', 'kill'], RETRY_SCHEDULED: ['reschedule', 'kill'], PENDING: ['reschedule', 'kill'] };
const TIMES = { DEAD: ['Dead since', 'died_at'], PUBLISHED: ['Published', 'published_at'], IN_FLIGHT: ['Lease ends', 'lease_until'] };
const MOST_NEWEST = 200; // events that the service lists with the newest first
const TOTALS = { '': 'put', DEAD: 'dead', PUBLISHED: 'published' }; // totals that grow with each event that enters the list

export function events(root, { box, query: asked }, signal) {
  const filter = Object.fromEntries(FIELDS.filter((name) => asked.get(name)).map((name) => [name, asked.get(name)]));
  const selected = filter.state || filter.phase || '';
  const newest = Object.keys(filter).every((name) => name === 'state') && asked.get('order') !== 'oldest'; // other filters are applied from the oldest on
  const parts = { fresh: h('div', {}), list: h('div', {}, loading()), more: h('div', { class: 'buttons' }) };
  root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Events'), tabs(box, filter, selected)),
    filterField(box, filter, (next) => go(href(box, 'events', null, next))), h('div', { class: 'list-head' }, bulk(box, filter, selected), ordering(box, filter, newest)), parts.fresh, parts.list, parts.more);
  new List(box, filter, selected, newest, parts, signal).read();
}

function tabs(box, filter, selected) {
  const { state: _, phase: __, ...others } = filter;
  const tab = (label, chosen, values) => h('a', { href: href(box, 'events', null, { ...others, ...values }), 'aria-current': chosen ? 'true' : null }, label);
  return h('div', { class: 'tabs', role: 'group', 'aria-label': 'Phase' }, tab('All', !selected, {}),
    selected === 'PENDING' && tab('Pending', true, { state: 'PENDING' }), // of an incident: of several phases
    PHASES.map(({ label, query: values }) => tab(label, Object.values(values)[0] === selected, values)));
}

/** What comes first, and a link to the other end of the list. */
function ordering(box, filter, newest) {
  if (newest) return h('p', { class: 'muted' }, 'Newest first. ', h('a', { href: href(box, 'events', null, { ...filter, order: 'oldest' }) }, 'Oldest first'));
  const both = Object.keys(filter).every((name) => name === 'state');
  return h('p', { class: 'muted' }, 'Oldest first. ', both && h('a', { href: href(box, 'events', null, filter) }, 'Newest first'));
}

/** What can be done with all events that match. */
function bulk(box, filter, selected) {
  const names = ACTIONS[selected];
  if (!mayOperate()) return null;
  if (!names) return h('p', { class: 'muted bulk-hint' }, 'To change all events that match, choose Dead, Published, Scheduled, Available or Retry.');
  return h('div', { class: 'actions' }, h('span', { class: 'muted' }, 'All that match:'), names.map((name) => h('button', {
    type: 'button', class: BULK_ACTIONS[name].danger ? 'danger' : null, 'data-shortcut': name === 'replay' ? 'r' : null,
    onclick: () => actOnMany(box, name, filter, 'all events that match'),
  }, `${BULK_ACTIONS[name].verb}…`)));
}

const replayable = (record) => REPLAY.states.includes(record.state);

/** The pages that were read so far. They stay as they are while someone reads; a bar says how many events are new. */
class List {
  constructor(box, filter, selected, newest, parts, signal) {
    Object.assign(this, { box, filter, selected, newest, parts, signal });
    this.limit = LIMIT;
    this.records = [];
    this.cursor = null;
    this.total = null; // events of this kind when the first page was read
    this.number = 0; // of readings
    watch(signal, () => this.countNew());
  }

  /** How many events ever entered this list; null where no total says it. */
  get known() {
    const total = this.newest ? TOTALS[this.selected] : undefined;
    return (total && state.live.stats?.totals[total]) ?? null;
  }

  countNew() {
    this.total ??= this.known;
    const fresh = this.known === null ? 0 : this.known - this.total;
    update(this.parts.fresh, fresh > 0 && this.records.length > 0 && h('button', { type: 'button', class: 'fresh', onclick: () => this.again() }, `${counted(fresh, 'new event')}: show ${fresh === 1 ? 'it' : 'them'}`));
  }

  again() {
    this.records = [];
    this.cursor = null;
    this.limit = LIMIT;
    this.total = this.known;
    this.countNew();
    this.read();
  }

  async read() {
    const number = (this.number += 1);
    this.cancel?.();
    for (const button of this.parts.more.querySelectorAll('button')) button.disabled = true;
    try {
      const how = this.newest ? { limit: this.limit, order: 'newest' } : { limit: LIMIT, cursor: this.cursor };
      const found = await get(this.box, `events${query({ ...this.filter, ...how })}`, { signal: this.signal });
      if (number !== this.number) return;
      this.records = this.newest ? found.events : [...this.records, ...found.events];
      this.cursor = found.cursor;
      this.draw();
      update(this.parts.more, this.newest ? this.older() : this.cursor !== null && h('button', { type: 'button', onclick: () => this.read() }, this.records.length ? 'Show more' : 'Search further'));
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (number !== this.number) return;
      this.cancel = tryAgain(this.signal, error, () => this.read());
      if (this.records.length) update(this.parts.more, failure(error, () => this.read()));
      else update(this.parts.list, failure(error, () => this.read()));
    }
  }

  draw() {
    update(this.parts.list, this.records.length ? this.rows() : this.cursor ? this.searching() : this.none());
  }

  /** Replays one event, and shows where it is then. */
  async replay(record) {
    if (!await actOnEvent(this.box, record, REPLAY)) return;
    const { payload: _, ...changed } = await get(this.box, `events/${segment(record.event_id)}`, { signal: this.signal });
    this.records = this.records.map((each) => (each.event_id === changed.event_id ? changed : each));
    this.draw();
  }

  /** How to see more than the newest. */
  older() {
    if (this.records.length < this.limit) return null;
    if (this.limit >= MOST_NEWEST) return h('p', { class: 'muted' }, `These are the newest ${MOST_NEWEST}. A filter finds others.`);
    return h('button', { type: 'button', onclick: () => this.more() }, 'Show more');
  }

  more() {
    this.limit = Math.min(this.limit * 2, MOST_NEWEST);
    this.total = this.known;
    this.countNew();
    return this.read();
  }

  searching() {
    return empty('No event found so far.', h('p', {}, 'The search looks at a part of the box at a time.'));
  }

  none() {
    if (Object.keys(this.filter).length) return empty('No events match.', h('p', {}, h('a', { href: href(this.box, 'events') }, 'Show all events')));
    return empty('No events yet.', h('p', {}, 'Try: '), h('p', {}, putCommand(this.box)));
  }

  rows() {
    const { box } = this;
    const [title, time] = TIMES[this.selected] || [this.selected ? 'Due' : 'Since, or due', null];
    const at = (record) => record[time] || record.died_at || record.published_at || record.claimed_at || record.available_at;
    const some = (name) => this.records.some((record) => record[name]);
    const columns = [
      { title: 'Event', cell: (record) => eventId(box, record.event_id, { row: true }) },
      { title: 'Type', class: 'wrap', cell: (record) => h('a', { href: href(box, 'events', null, { ...this.filter, type: record.event_type }) }, record.event_type) },
      { title: 'Phase', class: 'nowrap', cell: phase },
      { title, class: 'nowrap', cell: (record) => moment(at(record)) },
      { title: 'Attempts', class: 'number', cell: (record) => record.attempts },
      some('claimed_by') && { title: 'Relay', class: 'wrap', cell: (record) => record.claimed_by || '–' },
      some('ordering_key') && { title: 'Key', class: 'wrap', cell: (record) => (record.ordering_key ? h('a', { href: href(box, 'keys', record.ordering_key) }, record.ordering_key) : '–') },
      some('last_error') && { title: 'Error', class: 'error', cell: (record) => record.last_error || '–' },
      mayOperate() && this.records.some(replayable) && { title: '', class: 'row-action', cell: (record) => replayable(record) && h('button', {
        type: 'button', class: 'plain', 'data-shortcut': 'r', 'aria-label': `Replay event ${shortId(record.event_id)}`, onclick: () => this.replay(record),
      }, 'Replay…') },
    ];
    return table('Events', columns.filter(Boolean), this.records, (record) => record.event_id);
  }
}
