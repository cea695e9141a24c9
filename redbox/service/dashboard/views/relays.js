// Relays: who delivers, where to, and how it goes.

import { h, update } from '../dom.js';
import { compact, duration, rate } from '../format.js';
import { watch } from '../store.js';
import { command, empty, failure, loading, steady, table } from '../parts.js';

export function relays(root, { box }, signal) {
  const list = h('div', {});
  root.append(h('h1', {}, 'Relays'), list);
  watch(signal, ({ live, connection, problem }) => {
    const found = live.relays;
    if (found) update(list, found.length ? rows(steady(list, found, (relay) => relay.name)) : none(box));
    else update(list, connection === 'lost' && problem ? failure(problem, null) : loading());
  });
}

const none = (box) => empty('No relay has sent a heartbeat within a day.', h('p', {}, 'A relay claims events and delivers them to a target. Start one:'), h('p', {}, command(`redbox --box ${box} relay --to URL`)));

export function relayName(relay) {
  return h('span', { class: 'relay' }, h('strong', { class: 'wrap' }, relay.name), relay.silent && h('span', { class: 'bad' }, ` ✕ silent for ${duration(relay.seen)}`));
}

const LATE = 6; // seconds after which a heartbeat is older than usual

/** The claims of a relay as of its last heartbeat: with the age of that, if it is late, and none of a silent relay. */
export function inFlight(relay, number = compact(relay.in_flight)) {
  if (relay.silent) return '–';
  return relay.seen > LATE ? h('span', {}, number, h('span', { class: 'remark' }, `${duration(relay.seen)} ago`)) : number;
}

/** What a relay published per second before its last heartbeat. */
export const pace = (relay) => (relay.silent ? '–' : `${rate(relay.rate)}/s`);

const BREAKERS = { closed: ['✓', 'good'], open: ['✕', 'bad'] };

/** The state of the breaker in words, with its reason; that of a silent relay is not known. */
export function breaker(relay) {
  if (relay.silent) return h('span', {}, '–');
  const [symbol, tone] = BREAKERS[relay.breaker] || ['!', 'warn'];
  const since = relay.breaker_since === null || relay.breaker_since === undefined ? '' : ` for ${duration(relay.breaker_since)}`;
  return h('span', {}, h('span', { class: tone }, h('span', { 'aria-hidden': 'true' }, `${symbol} `), relay.breaker + since), relay.reason && h('span', { class: 'remark' }, relay.reason));
}

/** The last error, unless the breaker gives it as its reason. */
function lastError(relay) {
  const row = relay.failures_in_row > 1 ? `${compact(relay.failures_in_row)} failures in a row` : '';
  const text = relay.last_error === relay.reason ? '' : relay.last_error;
  return text || row ? `${text}${text && row ? `; ${row}` : row}` : '–';
}

function rows(found) {
  return table('Relays', [
    { title: 'Relay', cell: (relay) => h('div', {}, relayName(relay), h('span', { class: 'remark' }, `${relay.host} (${relay.pid}), redbox ${relay.version}, seen ${duration(relay.seen)} ago`)) },
    { title: 'Target', class: 'wrap target', cell: (relay) => h('code', {}, relay.target || '–') },
    { title: 'Breaker', cell: breaker },
    { title: 'In flight', class: 'number', cell: (relay) => inFlight(relay) },
    { title: 'Rate', class: 'number', cell: pace },
    { title: 'Published', class: 'number', cell: (relay) => compact(relay.published) },
    { title: 'Failed', class: 'number', cell: (relay) => compact(relay.failed) },
    { title: 'Last error', class: 'error', cell: lastError },
  ], found, (relay) => relay.name);
}
