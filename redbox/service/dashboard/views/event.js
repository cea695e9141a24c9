// One event: where it is and why, every step with its time, its payload, headers and keys.

import { h } from '../dom.js';
import { get, segment } from '../api.js';
import { count, counted, duration, time } from '../format.js';
import { href } from '../router.js';
import { mayOperate } from '../store.js';
import { copyButton, eventId, explanation, facts, load, moment, phase, repeat, section, table } from '../parts.js';
import { jsonText, payload } from '../payload.js';
import { EVENT_ACTIONS, actOnEvent } from '../actions.js';

const EVERY = 5000; // ms
const LONGEST = 200; // characters of an error in a filter
const TONES = { put: 'accent', claimed: 'accent', published: 'good', acked: 'good', died: 'bad', killed: 'bad', retried: 'warn', expired: 'warn', released: 'warn', replayed: 'accent' };
const WORDS = { died: 'DEAD', expired: 'lease expired' };
const wordOf = (outcome) => WORDS[outcome] || outcome;
const SYMBOLS = { good: '✓', bad: '✕', warn: '↻', accent: '●', past: '…' };

export function event(root, { box, name }, signal) {
  const read = async () => {
    const [found, why] = await Promise.allSettled([
      get(box, `events/${segment(name)}`, { signal, exact: true }),
      get(box, `events/${segment(name)}/why`, { signal }),
    ]);
    const removed = found.reason?.status === 404 && why.value?.found === false; // then `why` knows more
    if (found.status === 'rejected' && !removed) throw found.reason;
    return { record: found.value, why: why.value };
  };
  const body = h('div', {});
  root.append(body);
  const again = load(body, signal, read, ({ record, why }) => (record ? eventOf(box, record, why, () => again({ quiet: true })) : gone(box, name, why)));
  repeat(signal, EVERY, () => again({ quiet: true }));
}

function eventOf(box, record, why, again) {
  const act = (action) => async () => {
    if (await actOnEvent(box, record, action)) again();
  };
  const possible = EVENT_ACTIONS.filter((action) => action.states.includes(record.state));
  return h('div', { class: 'stack' },
    h('p', { class: 'crumbs' }, h('a', { href: href(box, 'events') }, 'Events')),
    h('div', { class: 'view-head' }, h('h1', {}, record.event_type), phase(record)),
    h('p', { class: 'id whole' }, h('code', {}, record.event_id), copyButton(record.event_id, 'event id')),
    why && explanation(why, box, { links: linksOf(box, record) }),
    mayOperate() && possible.length > 0 && h('div', { class: 'actions' }, possible.map((action) =>
      h('button', { type: 'button', class: action.danger ? 'danger' : action.name === 'replay' ? 'primary' : null, 'data-shortcut': action.shortcut, onclick: act(action) }, `${action.verb}…`))),
    section('Steps', null, diagram(record)),
    attemptsOf(record).length > 0 && section('Attempts', h('span', { class: 'muted' }, attemptsInWords(record)), attempts(record)),
    section('Payload', h('span', { class: 'muted' }, record.content_type), payload(record)),
    pairs('Headers', record.headers), pairs('Metadata', record.metadata),
    section('Keys and lineage', null, facts([
      ['Ordering key', record.ordering_key && h('a', { href: href(box, 'keys', record.ordering_key) }, record.ordering_key)],
      ['Unique key', record.unique_key],
      ['Unique scope', record.unique_key && record.unique_scope],
      ['Partition key', record.partition_key],
      ['Superseded by', record.superseded_by && eventId(box, record.superseded_by)],
      ['Supersedes', record.supersedes && eventId(box, record.supersedes)],
      ['Created', moment(record.created_at, { relative: false, exact: true })],
      ['Available', moment(record.available_at, { relative: false, exact: true })],
      ['Last claim number', record.number ? count(record.number) : null],
      ['Expired leases', record.expiries ? count(record.expiries) : null],
    ])),
    section('Raw', null, h('details', {}, h('summary', {}, 'The whole record as JSON'), h('div', { class: 'payload' }, copyButton(() => jsonText(record), 'record'), h('pre', {}, jsonText(record))))));
}

/** Other events that failed in the same way: with the beginning of the error, as far as a filter may be long. */
function linksOf(box, { state, last_error: error }) {
  const text = error?.split('\n')[0].slice(0, LONGEST).trim();
  return text ? [h('a', { href: href(box, 'events', null, { state, error: text }) }, 'Events with the same error')] : [];
}

/** An event that the box does not hold: removed, or never put. */
function gone(box, name, why) {
  return h('div', { class: 'stack' }, h('p', { class: 'crumbs' }, h('a', { href: href(box, 'events') }, 'Events')), h('h1', { class: 'wrap' }, name), explanation(why, box));
}

/** The attempts among the steps that are kept; the last one, if it succeeded, is in the event itself. */
function attemptsOf(record) {
  const found = record.history.filter((step) => step.outcome !== 'replayed');
  if (record.state !== 'PUBLISHED' || !record.published_at) return found;
  return [...found, { at: record.published_at, outcome: 'published', by: record.published_by, number: record.number, seconds: record.published_seconds, error: '' }];
}

/** How many attempts have ended, but are not among the steps that are kept. */
const forgotten = (record) => Math.max(0, record.attempts - (record.state === 'CLAIMED' ? 1 : 0) - attemptsOf(record).length);

function attemptsInWords(record) {
  const kept = attemptsOf(record).length;
  return forgotten(record) ? `${count(kept + forgotten(record))} in all; the last ${kept === 1 ? 'one is' : `${count(kept)} are`} kept` : '';
}

/** The steps of its life in order: [{word, at, by, tone}]; what is not done yet comes last. */
function steps(record) {
  const found = [{ word: 'Put', at: record.created_at, tone: 'accent' }];
  if (forgotten(record)) found.push({ word: counted(forgotten(record), 'earlier attempt'), at: null, tone: 'past' });
  for (const step of record.history) found.push({ word: wordOf(step.outcome), at: step.at, by: step.by, tone: TONES[step.outcome] || 'accent' });
  const last = (word) => found.at(-1).word === word;
  if (record.claimed_at) found.push({ word: 'claimed', at: record.claimed_at, by: record.claimed_by, tone: 'accent' });
  if (record.published_at && !last('published')) found.push({ word: 'published', at: record.published_at, by: record.published_by, tone: 'good' });
  if (record.died_at && !last('DEAD') && !last('killed')) found.push({ word: 'DEAD', at: record.died_at, tone: 'bad' });
  if (record.state === 'PENDING') found.push({ word: record.waiting ? 'waits in its line' : 'due', at: record.available_at, tone: 'future' });
  if (record.state === 'CLAIMED') found.push({ word: 'lease ends', at: record.lease_until, tone: 'future' });
  return found;
}

/** The state diagram: one node for each step, with the time between two of them. */
function diagram(record) {
  const found = steps(record);
  return h('ol', { class: 'diagram' }, found.map((step, index) => {
    const before = index && step.at && found[index - 1].at ? (Date.parse(step.at) - Date.parse(found[index - 1].at)) / 1000 : null;
    return h('li', { class: `step step-${step.tone}`, 'aria-current': index === found.length - 1 ? 'step' : null },
      h('span', { class: 'step-gap' }, before === null || before < 0 ? '' : `+${duration(before)}`),
      h('span', { class: 'step-mark', 'aria-hidden': 'true' }, SYMBOLS[step.tone] || '○'),
      h('span', { class: 'step-word' }, step.word), step.at && h('time', { datetime: step.at, title: step.at }, time(step.at, { exact: true })),
      step.by && h('span', { class: 'step-by' }, step.by));
  }));
}

function attempts(record) {
  return table('Attempts', [
    { title: 'When', class: 'nowrap', cell: (step) => moment(step.at, { relative: false, exact: true }) },
    { title: 'Outcome', cell: (step) => h('span', { class: `outcome ${TONES[step.outcome] || ''}` }, `${SYMBOLS[TONES[step.outcome]] || '●'} ${wordOf(step.outcome)}`) },
    { title: 'By', class: 'wrap', cell: (step) => step.by || '–' },
    { title: 'Took', class: 'number nowrap', cell: (step) => duration(step.seconds) },
    { title: 'Answer', class: 'error', cell: (step) => step.error || '–' },
  ], attemptsOf(record), (step) => `${step.at}${step.number}`);
}

function pairs(title, values) {
  const found = Object.entries(values || {});
  return found.length > 0 && section(title, null, facts(found.map(([name, value]) => [name, h('code', {}, String(value))])));
}
