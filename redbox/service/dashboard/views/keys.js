// Keys: ordering keys that wait, and why; keys that are paused.

import { h } from '../dom.js';
import { get, query, segment } from '../api.js';
import { go, href } from '../router.js';
import { mayOperate, state } from '../store.js';
import { counted } from '../format.js';
import { empty, eventId, explanation, load, moment, phase, repeat, section, steady, table } from '../parts.js';
import { pause, resume } from '../actions.js';

const EVERY = 10000; // ms
const LOOKED = 100; // events that wait, whose keys are looked at
const KEYS = 20; // of these
const RESTING = ['RETRY_SCHEDULED', 'SCHEDULED']; // phases of a head that keep its line waiting for a time

export function keys(root, { box, name }, signal) {
  const one = h('div', {});
  const all = h('div', {});
  root.append(h('h1', {}, 'Ordering keys'), search(box, name), one, all);
  const readOne = name ? load(one, signal, () => get(box, `keys/${segment(name)}/why`, { signal }), (why) => keyOf(box, name, why, again)) : () => {};
  const readAll = load(all, signal, read, (found) => lists(box, found, all, again));
  repeat(signal, EVERY, again);

  async function read() {
    const found = await get(box, 'keys', { signal });
    return { ...found, waiting: await keysThatWait(box, found.blocked, KEYS, signal) };
  }

  function again() {
    readOne({ quiet: true });
    readAll({ quiet: true });
  }
}

function search(box, name) {
  const input = h('input', { type: 'search', value: name || '', 'aria-label': 'Ordering key', placeholder: 'Ordering key, such as order-7', autocomplete: 'off', spellcheck: 'false' });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) go(href(box, 'keys', input.value.trim()));
  };
  return h('form', { class: 'inline', onsubmit: submit }, input, h('button', { type: 'submit' }, 'Explain'));
}

function keyOf(box, key, why, again) {
  const actions = [h('a', { class: 'button', href: href(box, 'events', null, { key }) }, 'See its events')];
  const paused = why.situation === 'key_paused';
  const act = async () => {
    if (await (paused ? resume(box, key) : pause(box, key))) again();
  };
  if (mayOperate()) actions.push(h('button', { type: 'button', onclick: act }, paused ? 'Resume…' : 'Pause…'));
  return h('div', { class: 'stack' }, h('h2', {}, `Key ${key}`), explanation(why, box, { actions }));
}

/** Columns of blocked keys and of keys that wait, for the overview. It has their errors among the incidents. */
export function heldColumns(box) {
  const head = (each) => (each.head.event_id ? each.head : { event_id: each.head, phase: 'DEAD', available_at: each.since });
  return [
    { title: 'Key', class: 'wrap', cell: (each) => h('a', { href: href(box, 'keys', each.key), 'data-row': true }, each.key) },
    { title: 'Waiting', cell: (each) => behind(box, each.key, each.waiting ?? each.length - 1, head(each).event_id) },
    { title: 'Head', class: 'nowrap', cell: (each) => headOf(head(each)) },
  ];
}

const behind = (box, key, number, head) => h('span', {}, h('a', { href: href(box, 'events', null, { phase: 'WAITING', key }) }, counted(number, 'event')), ' behind ', eventId(box, head));
const headOf = (head) => h('span', {}, phase(head), ' ', moment(head.available_at));

/** Columns of blocked keys. */
function blockedColumns(box) {
  return [
    { title: 'Key', class: 'wrap', cell: (each) => h('a', { href: href(box, 'keys', each.key), 'data-row': true }, each.key) },
    { title: 'Waiting', cell: (each) => behind(box, each.key, each.waiting, each.head) },
    { title: 'Error', class: 'error', cell: (each) => each.why || '–' },
    { title: 'Since', class: 'nowrap', cell: (each) => moment(each.since) },
  ];
}

/**
 * Keys whose head waits for its time, such as a retry, so that the events behind it wait too: {keys, all}. The store lists dead heads only: these
 * are the keys of the first events that wait, at most `limit`. `all`: no event that waits was left out.
 */
export async function keysThatWait(box, blocked, limit, signal) {
  if (state.live.stats?.waiting === 0) return { keys: [], all: true };
  const { events, cursor } = await get(box, `events${query({ phase: 'WAITING', limit: LOOKED })}`, { signal });
  const names = [...new Set(events.map((each) => each.ordering_key))].filter((name) => name && !blocked.some(({ key }) => key === name));
  const lines = await Promise.all(names.slice(0, limit).map(async (key) => ({ key, ...(await get(box, `keys/${segment(key)}/why`, { signal })).evidence })));
  return { keys: lines.filter(({ head }) => RESTING.includes(head?.phase)), all: cursor === null && names.length <= limit };
}

/** Columns of keys whose head waits for its time. */
function waitingColumns(box) {
  return [
    { title: 'Key', class: 'wrap', cell: (each) => h('a', { href: href(box, 'keys', each.key), 'data-row': true }, each.key) },
    { title: 'Waiting', cell: (each) => behind(box, each.key, each.length - 1, each.head.event_id) },
    { title: 'Head', class: 'nowrap', cell: (each) => headOf(each.head) },
    { title: 'Error', class: 'error', cell: (each) => each.head.last_error || '–' },
  ];
}

/** Keys that wait for their heads, or what is known where none is found. */
function waitingSection(box, { keys: found, all }, root) {
  const total = state.live.stats?.waiting || 0;
  const rest = !all && h('p', { class: 'remark' }, `From the first ${LOOKED} events that wait: other keys may wait too.`);
  if (found.length) return [table('Keys that wait', waitingColumns(box), steady(root, found, keyOfLine), keyOfLine), rest];
  return [empty(total ? `${waitInWords(total)}.` : 'No event waits behind another one of its key.',
    h('p', {}, 'If the head of a key waits for a retry, or for its time, the key is listed here.')), rest];
}

export const keyOfLine = (each) => each.key;

/** No key is blocked or held up; still, events may wait for others of their keys. */
export function noneHeld() {
  const total = state.live.stats?.waiting || 0;
  return total ? empty(`${waitInWords(total)}.`, h('p', {}, 'No key is blocked by a dead event, and none waits for a retry.')) : noneBlocked();
}

const waitInWords = (total) => `${counted(total, 'event')} ${total === 1 ? 'waits' : 'wait'} behind other events of their keys`;

/** What blocks a key, where none is. */
const noneBlocked = () => empty('No ordering key is blocked by a dead event.', h('p', {}, 'If the setting ', h('code', {}, 'dead_head'), ' is ', h('code', {}, 'block'), ', a dead event holds back the events behind it. Its key is listed here.'));

function lists(box, { blocked, paused, waiting }, root, again) {
  const resumeAndRead = (key) => async () => {
    if (await resume(box, key)) again();
  };
  return h('div', { class: 'stack' },
    section('Blocked', null, blocked.length
      ? table('Blocked keys', blockedColumns(box), steady(root, blocked, keyOfLine), keyOfLine)
      : noneBlocked()),
    section('Waiting behind a retry or a later time', null, waitingSection(box, waiting, root)),
    section('Paused', null, paused.length
      ? table('Paused keys', [
        { title: 'Key', class: 'wrap', cell: (each) => h('a', { href: href(box, 'keys', each.key), 'data-row': true }, each.key) },
        { title: 'By', cell: (each) => each.who || '–' },
        { title: 'Reason', cell: (each) => each.why || '–' },
        { title: 'Since', class: 'nowrap', cell: (each) => moment(each.since) },
        { title: 'Ends', class: 'nowrap', cell: (each) => (each.until ? moment(each.until) : 'when resumed') },
        { title: '', class: 'row-action', cell: (each) => mayOperate() && h('button', { type: 'button', class: 'plain', 'aria-label': `Resume key ${each.key}`, onclick: resumeAndRead(each.key) }, 'Resume…') },
      ], paused, keyOfLine)
      : empty('No ordering key is paused.')));
}
