// Overview: are events arriving, and if not, why?

import { h, update } from '../dom.js';
import { get } from '../api.js';
import { Chart } from '../chart.js';
import { compact, counted, duration, milliseconds, rate } from '../format.js';
import { href } from '../router.js';
import { mayOperate, state, watch } from '../store.js';
import { MOODS, PHASES, command, empty, explanation, failure, loading, moment, mood, putCommand, repeat, section, steady, table } from '../parts.js';
import { pause, resume } from '../actions.js';
import { incidentRows, readIncidents } from './incidents.js';
import { breaker, inFlight, pace, relayName } from './relays.js';
import { heldColumns, keyOfLine, keysThatWait, noneHeld } from './keys.js';

const perSecond = (value) => (value === null || value === undefined ? '–' : `${rate(value)}/s`);
const EVERY = 10000; // ms between two readings of what is not in the live feed
const KEYS = 6; // that the overview shows
const LATELY = 3600000; // ms for which events that died need attention
const INCIDENTS = 5; // that the overview shows
/** The windows of the charts: their length in seconds, and whether the samples of the live feed are as long as theirs. */
const WINDOWS = { '1h': { words: 'Last hour', length: 3600, live: true }, '24h': { words: 'Last day', length: 86400, live: false } };

export function overview(root, { box, query }, signal) {
  const since = Object.hasOwn(WINDOWS, query.get('since')) ? query.get('since') : '';
  const window = Object.hasOwn(WINDOWS, query.get('window')) ? query.get('window') : '1h';
  const parts = { why: h('div', {}), spoken: h('p', { class: 'hidden', role: 'status' }), rates: h('div', { class: 'rates', hidden: true }, chartHead(box, window, since)), phases: h('div', {}), incidents: h('div', {}), relays: h('div', {}), keys: h('div', {}) };
  root.append(h('h1', { class: 'hidden' }, `Box ${box}`), parts.spoken, parts.why, parts.rates, parts.phases, parts.incidents, h('div', { class: 'halves' }, parts.relays, parts.keys));
  followRates(parts.rates, box, window, signal);
  if (since) followIncidents(parts.incidents, box, window, since, signal);
  followKeys(parts.keys, box, signal);
  watch(signal, ({ live, connection, problem }) => {
    update(parts.why, sentence(box, live, connection, problem));
    speak(parts.spoken, live);
    parts.rates.hidden = !live.stats || isEmpty(live.stats);
    if (!live.stats) return;
    update(parts.phases, isEmpty(live.stats) ? firstEvent(box) : phases(box, live.stats));
    if (!since) update(parts.incidents, incidentSection(box, window, '', live, parts.incidents));
    update(parts.relays, section('Relays', h('a', { href: href(box, 'relays') }, 'All relays'), relayRows(box, steady(parts.relays, live.relays, (relay) => relay.name))));
  });
}

/** Links that choose a time; the others of the page stay as they are. */
function times(box, label, choices, current, address) {
  return h('div', { class: 'tabs', role: 'group', 'aria-label': label }, choices.map(([value, words]) =>
    h('a', { href: href(box, 'overview', null, address(value)), 'aria-current': value === current ? 'true' : null }, words)));
}

/** The default is not written into the address. */
const addressOf = (window, since) => ({ window: window === '1h' ? '' : window, since });
const CHOICES = Object.entries(WINDOWS).map(([name, { words }]) => [name, words]);

const chartHead = (box, window, since) => h('div', { class: 'section-head' }, h('h2', {}, 'Rates'),
  times(box, 'Time of the charts', CHOICES, window, (value) => addressOf(value, since)));

function incidentSection(box, window, since, found, root) {
  const aside = h('div', { class: 'section-aside' }, times(box, 'Time of the incidents', [['', 'Any time'], ...CHOICES], since, (value) => addressOf(window, value)),
    h('a', { href: href(box, 'incidents', null, { since }) }, 'All incidents'));
  return section('Incidents', aside, incidentRows(box, { ...found, groups: found.groups.slice(0, INCIDENTS) }, root));
}

/** The incidents of a time, which are not in the live feed. */
function followIncidents(root, box, window, since, signal) {
  const read = async () => {
    try {
      const found = await readIncidents(box, { since }, signal);
      if (!signal.aborted) update(root, incidentSection(box, window, since, found, root));
    } catch {
      // the sentence at the top says what is wrong
    }
  };
  read();
  repeat(signal, EVERY, read);
}

/** Says to a screen reader that the situation is another one than before. Numbers alone change every second. */
function speak(root, live) {
  if (!live.why) return;
  const tone = toneOf(live);
  const situation = `${tone} ${flows(live) ? 'flowing' : live.why.situation}`;
  const before = root.dataset.situation;
  root.dataset.situation = situation;
  if (before && before !== situation) update(root, `${MOODS[tone].word}: ${inWords(live).sentences[0]}`);
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
  const tone = flows(live) ? 'ok' : mood(live.why.situation);
  return tone === 'ok' && (diedLately(live) || undelivered(live)) ? 'warn' : tone;
}

/** Without a relay, nothing is delivered that is put from now on. */
const undelivered = ({ relays }) => Boolean(relays) && relays.every((relay) => relay.silent);

/** Dead events do not keep others from flowing, but did not arrive: new ones need attention, and old ones are named only. */
function diedLately({ stats, groups = [], rates_last: last }) {
  if (!stats?.phases.DEAD) return false;
  return last?.dead > 0 || groups.some((group) => group.state === 'DEAD' && Date.parse(stats.at) - Date.parse(group.last_seen) < LATELY);
}

/** What is worth a look beside the sentence. */
function linksOf(box, { stats, groups, dead_groups: errors, sampled }) {
  const links = [];
  const dead = stats?.phases.DEAD;
  const only = errors === 1 && !sampled && groups?.find((group) => group.state === 'DEAD'); // one of the largest groups, unless it is small
  const to = only ? href(box, 'incident', only.group, { state: 'DEAD' }) : href(box, 'incidents');
  if (dead) links.push(h('a', { class: 'bad', href: to }, h('span', { 'aria-hidden': 'true' }, '✕ '), counted(dead, 'dead event'), errorsInWords(dead, errors, sampled)));
  for (const limit of stats?.limits_reached ?? []) links.push(h('a', { class: 'warn', href: href(box, 'settings') }, h('span', { 'aria-hidden': 'true' }, '≤ '), `${limit} ${stats.settings[limit]} is reached`));
  if (stats?.blocked) links.push(h('a', { class: 'warn', href: href(box, 'keys') }, h('span', { 'aria-hidden': 'true' }, '⋯ '), counted(stats.blocked, 'blocked key')));
  return links;
}

/** How many different errors the dead events have; a sample may have missed some. */
function errorsInWords(dead, errors, sampled) {
  if (!errors || dead === 1) return '';
  if (errors === 1) return sampled ? ', most with the same error' : ' with the same error';
  return ` with ${sampled ? 'at least ' : ''}${errors} different errors`;
}

const isEmpty = (stats) => !(stats.totals.put > 0) && Object.values(stats.phases).every((number) => !number);

function firstEvent(box) {
  return empty('No events yet.', h('p', {}, 'Put the first one, and it appears here within a second:'), h('p', {}, putCommand(box)));
}

/** Counts by phase, each a link to its events. */
function phases(box, stats) {
  const ages = { AVAILABLE: ['oldest', stats.oldest_available], DEAD: ['oldest', stats.oldest_dead], RETRY_SCHEDULED: ['next in', stats.phases.RETRY_SCHEDULED && stats.next_due], SCHEDULED: ['next in', stats.phases.SCHEDULED && stats.next_due] };
  const numbers = { ...stats.phases, WAITING: stats.waiting }; // those that wait count in their phase too
  const tiles = PHASES.map(({ name, label, symbol, query }) => {
    const [words, age] = ages[name] || [];
    if (name === 'IN_FLIGHT' && stats.settings.max_in_flight) return tile(name, label, symbol, numbers[name], href(box, 'events', null, query), `of at most ${compact(stats.settings.max_in_flight)}`);
    const remark = name === 'WAITING' ? waitingInWords(stats) : age ? `${words} ${duration(Math.abs(age))}` : '';
    return tile(name, label, symbol, numbers[name], href(box, 'events', null, query), remark);
  });
  return h('div', { class: 'tiles', role: 'group', 'aria-label': 'Events by phase' }, tiles);
}

/** Where the events that wait are counted too. */
function waitingInWords({ waiting, waiting_due: due, phases: { AVAILABLE: available } }) {
  return due === waiting ? `of the ${compact(available)} available` : 'counted in their phases too';
}

function tile(name, label, symbol, number, link, remark) {
  return h('a', { class: `tile tile-${name.toLowerCase()}${number ? '' : ' tile-none'}`, href: link, title: `${label}: ${number}` },
    h('span', { class: 'tile-label' }, h('span', { 'aria-hidden': 'true' }, `${symbol} `), label),
    h('span', { class: 'tile-number' }, compact(number)), h('span', { class: 'tile-remark' }, number ? remark : ''));
}

function relayRows(box, relays) {
  if (!relays.length) return empty('No relay is running.', h('p', {}, 'A relay delivers the events: '), h('p', {}, command(`redbox --box ${box} relay --to URL`)));
  return table('Relays', [
    { title: 'Relay', cell: relayName },
    { title: 'In flight', class: 'number', cell: (relay) => inFlight(relay, relay.in_flight ? h('a', { href: href(box, 'events', null, { phase: 'IN_FLIGHT' }) }, compact(relay.in_flight)) : '0') },
    { title: 'Rate', class: 'number', cell: pace },
    { title: 'Breaker', cell: breaker },
  ], relays.slice(0, 6), (relay) => relay.name);
}

/** The samples with a later one: added, in the place of the last if that was not complete, or left out; null if samples between them are missing. */
export function joined(samples, last, step) {
  if (!samples.length) return [last];
  const gap = (Date.parse(last.at) - Date.parse(samples.at(-1).at)) / 1000;
  if (gap < 0) return samples;
  if (gap === 0) return [...samples.slice(0, -1), last];
  return gap > step * 1.5 ? null : [...samples, last];
}

/** The four charts: the whole window at first, then one sample after the other from the live feed, or the window again once a minute. */
async function followRates(root, box, window, signal) {
  const put = new Chart('Put', [{ name: 'put', kind: 'accent' }], perSecond, 1, href(box, 'events'));
  const published = new Chart('Published', [{ name: 'published', kind: 'good' }], perSecond, 1, href(box, 'events', null, { state: 'PUBLISHED' }));
  const failed = new Chart('Failed', [{ name: 'failed', kind: 'bad' }], perSecond, 1, href(box, 'incidents', null, { since: window }));
  const latency = new Chart('Latency', [{ name: 'p50_ms', label: 'p50', kind: 'accent' }, { name: 'p99_ms', label: 'p99', kind: 'muted' }], milliseconds, 10);
  const charts = [put, published, failed, latency];
  root.append(h('div', { class: 'charts' }, charts.map((chart) => chart.element)));
  const { length, live: follows } = WINDOWS[window];
  let samples = [];
  let step = 0;
  let reading = false;
  const draw = (next) => {
    samples = next.filter((each) => Date.parse(next.at(-1).at) - Date.parse(each.at) <= length * 1000);
    for (const chart of charts) chart.draw(samples, step);
  };
  const read = async () => {
    if (reading) return;
    reading = true;
    try {
      const found = await get(box, `rates?window=${window}`, { signal });
      step = found.step;
      draw(found.samples);
    } catch {
      // the sentence at the top says what is wrong
    } finally {
      reading = false;
    }
  };
  const add = ({ live: { rates_last: last } }) => {
    if (!last || reading) return;
    const next = joined(samples, last, step);
    if (next === null) read();
    else if (next !== samples) draw(next);
  };
  draw([]);
  await read();
  if (signal.aborted) return;
  if (follows) watch(signal, add);
  else repeat(signal, step * 1000 || EVERY, read);
}

/** Ordering keys that do not move, read now and then: they are not in the live feed, which says how many events wait. */
function followKeys(root, box, signal) {
  let found = null;
  const draw = () => {
    if (!found || !state.live.stats) return;
    const held = steady(root, found, keyOfLine);
    update(root, section('Ordering keys that wait', h('a', { href: href(box, 'keys') }, 'All keys'),
      held.length ? table('Ordering keys that wait', heldColumns(box), held, keyOfLine) : noneHeld()));
  };
  const read = async () => {
    if (state.connection === 'lost') return;
    try {
      const { blocked } = await get(box, 'keys', { signal });
      const { keys: waiting } = await keysThatWait(box, blocked, KEYS, signal);
      if (signal.aborted) return;
      found = [...blocked, ...waiting].slice(0, KEYS);
      draw();
    } catch {
      // the sentence at the top says what is wrong
    }
  };
  read();
  watch(signal, draw);
  repeat(signal, EVERY, read);
}
