// Overview: are events arriving, and if not, why?

import { h, update } from '../dom.js';
import { get } from '../api.js';
import { Chart } from '../chart.js';
import { compact, counted, duration, milliseconds, rate } from '../format.js';
import { href } from '../router.js';
import { mayOperate, state, watch } from '../store.js';
import { PHASES, command, empty, explanation, failure, loading, moment, mood, section, table } from '../parts.js';
import { pause, resume } from '../actions.js';
import { incidentRows } from './incidents.js';
import { breaker, relayName } from './relays.js';
import { blockedColumns } from './keys.js';

const perSecond = (value) => `${rate(value)}/s`;
const KEYS_EVERY = 10000; // ms
const LONGEST = 3600000; // ms of history that the charts show

export function overview(root, { box }, signal) {
  const parts = { why: h('div', { 'aria-live': 'polite' }), charts: h('div', { class: 'charts' }), phases: h('div', {}), incidents: h('div', {}), relays: h('div', {}), keys: h('div', {}) };
  root.append(h('h1', { class: 'hidden' }, `Box ${box}`), parts.why, parts.charts, parts.phases, parts.incidents, h('div', { class: 'halves' }, parts.relays, parts.keys));
  followRates(parts.charts, box, signal);
  followKeys(parts.keys, box, signal);
  watch(signal, ({ live, connection, problem }) => {
    update(parts.why, sentence(box, live, connection, problem));
    parts.charts.hidden = !live.stats;
    if (!live.stats) return;
    update(parts.phases, isEmpty(live.stats) ? firstEvent(box) : phases(box, live.stats));
    update(parts.incidents, section('Incidents', h('a', { href: href(box, 'incidents') }, 'All incidents'), incidentRows(box, live.groups || [])));
    update(parts.relays, section('Relays', h('a', { href: href(box, 'relays') }, 'All relays'), relayRows(box, live.relays || live.stats.relays || [])));
  });
}

function sentence(box, live, connection, problem) {
  if (connection === 'lost' && problem) return [failure(problem, null), live.stats && h('p', { class: 'muted as-of' }, 'The numbers below are as of ', moment(live.stats.at), '.')];
  if (!live.why) return loading();
  const actions = [];
  if (mayOperate() && live.stats?.paused) actions.push(h('button', { type: 'button', class: 'primary', onclick: () => resume(box) }, 'Resume…'));
  else if (mayOperate() && live.stats) actions.push(h('button', { type: 'button', onclick: () => pause(box) }, 'Pause…'));
  return explanation(inWords(live), box, { tone: toneOf(live), actions, links: linksOf(box, live) });
}

/** Situations in which other events may flow. From one moment to the next they take turns with `flowing`. */
const PARTIAL = ['flowing', 'scheduled', 'retry_scheduled', 'waiting', 'blocked'];
const flows = ({ why, rates_last: last }) => PARTIAL.includes(why.situation) && last?.published > 0;

/** The explanation of the box; while events are published, it begins with their rate. */
function inWords(live) {
  const { why, rates_last: last } = live;
  return flows(live) ? { ...why, sentences: [`Events are flowing: ${perSecond(last.published)} published.`, ...why.sentences] } : why;
}

/** A blocked key holds back its own events only: the box needs attention, and is not stopped. */
function toneOf(live) {
  if (live.why.situation === 'blocked') return 'warn';
  return flows(live) ? 'ok' : mood(live.why.situation);
}

/** Dead events do not keep others from flowing, so they do not change the mark; but they did not arrive, and are named beside it. */
function linksOf(box, { stats, groups }) {
  const links = [];
  const dead = stats?.phases.DEAD;
  const errors = (groups || []).filter((group) => group.state === 'DEAD').length;
  if (dead) links.push(h('a', { class: 'bad', href: href(box, 'incidents') }, h('span', { 'aria-hidden': 'true' }, '✕ '), `${counted(dead, 'dead event')}${errors ? ` ${errors === 1 ? 'with the same error' : `with ${errors >= 5 ? '5 or more' : errors} different errors`}` : ''}`));
  if (stats?.blocked) links.push(h('a', { class: 'warn', href: href(box, 'keys') }, h('span', { 'aria-hidden': 'true' }, '⋯ '), counted(stats.blocked, 'blocked key')));
  return links;
}

const isEmpty = (stats) => !(stats.totals.put > 0) && Object.values(stats.phases).every((number) => !number);

function firstEvent(box) {
  const curl = `curl -d '{"event_type": "user.created", "payload": {"id": 42}}' ${location.origin}/v1/boxes/${encodeURIComponent(box)}/events`;
  return empty('No events yet.', h('p', {}, 'Put the first one, and it appears here within a second:'), h('p', {}, command(curl)));
}

/** Counts by phase, each a link to its events. */
function phases(box, stats) {
  const ages = { AVAILABLE: ['oldest', stats.oldest_available], DEAD: ['oldest', stats.oldest_dead], RETRY_SCHEDULED: ['next in', stats.phases.RETRY_SCHEDULED && stats.next_due], SCHEDULED: ['next in', stats.phases.SCHEDULED && stats.next_due] };
  const numbers = { ...stats.phases, WAITING: stats.waiting }; // those that wait count in their phase too
  const tiles = PHASES.map(({ name, label, symbol, query }) => {
    const [words, age] = ages[name] || [];
    const remark = name === 'WAITING' ? (stats.blocked ? counted(stats.blocked, 'blocked key') : 'behind others') : name === 'AVAILABLE' && stats.waiting_due ? `${compact(stats.waiting_due)} of them wait` : age ? `${words} ${duration(Math.abs(age))}` : '';
    return tile(name, label, symbol, numbers[name], href(box, 'events', null, query), remark);
  });
  return h('div', { class: 'tiles', role: 'group', 'aria-label': 'Events by phase' }, tiles);
}

function tile(name, label, symbol, number, link, remark) {
  return h('a', { class: `tile tile-${name.toLowerCase()}${number ? '' : ' tile-none'}`, href: link, title: `${label}: ${number}` },
    h('span', { class: 'tile-label' }, h('span', { 'aria-hidden': 'true' }, `${symbol} `), label),
    h('span', { class: 'tile-number' }, compact(number)), h('span', { class: 'tile-remark' }, number ? remark : ''));
}

function relayRows(box, relays) {
  if (!relays.length) return empty('No relay is running.', h('p', {}, 'A relay delivers the events: '), h('p', {}, command(`redbox --box ${box} relay --to URL`)));
  return table('Relays', [
    { title: 'Relay', cell: (relay) => relayName(box, relay) },
    { title: 'In flight', class: 'number', cell: (relay) => compact(relay.in_flight) },
    { title: 'Rate', class: 'number', cell: (relay) => perSecond(relay.rate) },
    { title: 'Breaker', cell: breaker },
  ], relays.slice(0, 6), (relay) => relay.name);
}

/** The four charts: the last hour at first, then one sample after the other from the live feed. */
async function followRates(root, box, signal) {
  const put = new Chart('Put', [{ name: 'put', kind: 'accent' }], perSecond, 1);
  const published = new Chart('Published', [{ name: 'published', kind: 'good' }], perSecond, 1);
  const failed = new Chart('Failed', [{ name: 'failed', kind: 'bad' }], perSecond, 1);
  const latency = new Chart('Latency', [{ name: 'p50_ms', label: 'p50', kind: 'accent' }, { name: 'p99_ms', label: 'p99', kind: 'muted' }], milliseconds, 10);
  const charts = [put, published, failed, latency];
  root.append(...charts.map((chart) => chart.element));
  for (const chart of charts) chart.draw([]);
  let samples = [];
  const add = ({ live }) => {
    const last = live.rates_last;
    if (!last || !last.at || (samples.length && Date.parse(last.at) <= Date.parse(samples.at(-1).at))) return;
    samples = [...samples, last].filter((each) => Date.parse(last.at) - Date.parse(each.at) <= LONGEST);
    for (const chart of charts) chart.draw(samples);
  };
  try {
    samples = (await get(box, 'rates?window=1h', { signal })).samples;
  } catch (error) {
    if (error.name === 'AbortError') return; // else the sentence at the top says what is wrong
  }
  if (signal.aborted) return;
  for (const chart of charts) chart.draw(samples);
  watch(signal, add);
}

/** Ordering keys whose events wait, read now and then: they are not in the live feed. */
function followKeys(root, box, signal) {
  const read = async () => {
    if (!document.hidden && state.connection !== 'lost') {
      try {
        const { blocked } = await get(box, 'keys', { signal });
        update(root, section('Ordering keys that wait', h('a', { href: href(box, 'keys') }, 'All keys'),
          blocked.length ? table('Ordering keys that wait', blockedColumns(box), blocked.slice(0, 6), (each) => each.key) : empty('No ordering key is blocked.')));
      } catch {
        // the sentence at the top says what is wrong
      }
    }
  };
  read();
  const timer = setInterval(read, KEYS_EVERY);
  signal.addEventListener('abort', () => clearInterval(timer));
}
