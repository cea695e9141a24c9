// One incident: when it failed and what happened then, which keys it blocks, what is different in its payload, and the replay.

import { h } from '../dom.js';
import { get, query, segment } from '../api.js';
import { markOf, timeline } from '../chart.js';
import { count, counted, time } from '../format.js';
import { href } from '../router.js';
import { mayOperate, watch } from '../store.js';
import { empty, eventId, facts, load, moment, repeat, section } from '../parts.js';
import { sideBySide } from '../payload.js';
import { actOnMany, ended } from '../jobs.js';
import { about, readIncidents, titleOf } from './incidents.js';

const EVERY = 10000; // ms
const MOST = 200; // entries of the timeline in the list

export function incident(root, { box, name, query: asked }, signal) {
  let own = null; // the last job that was started here
  let sampled = false; // whether the box has more failed events than were read
  let over = false; // whether no event had this error when it was last read
  const current = async () => !over || (await readIncidents(box, { state: asked.get('state') || '' }, signal)).groups.some((each) => each.group === name);
  const read = async () => (await current() ? readGroup() : null);
  const readGroup = () => get(box, `error-groups/${segment(name)}${query({ state: asked.get('state') })}`, { signal, exact: true }).catch((error) => {
    over = error.status === 404 && error.error !== 'UnknownBox';
    if (over) return null;
    throw error;
  });
  const again = load(root, signal, read, (found) => (found ? incidentOf(box, found, seen) : repaired(box, own, sampled)));
  const seen = (job) => {
    const news = ended(job) && !(own?.id === job.id && ended(own));
    own = job;
    over ||= news && job.state === 'done' && Boolean(DONE[job.action]) && !job.result?.refused_count; // then look whether others have it, instead of asking for what is gone
    if (news) again({ quiet: true });
  };
  watch(signal, ({ live }) => {
    const job = own && !ended(own) && live.jobs?.find((each) => each.id === own.id);
    if (job) seen(job);
    if (Boolean(live.sampled) === sampled) return;
    sampled = Boolean(live.sampled);
    again({ quiet: true });
  });
  repeat(signal, EVERY, () => again({ quiet: true }));
}

const DONE = { replay: 'All were replayed.', drop: 'All were dropped.', kill: 'All were killed: they are DEAD now.' };

/** An error that no event has any more, as far as events were read, and the job that may have been the reason. */
function repaired(box, job, sampled) {
  const all = job?.state === 'done' && !job.result?.refused_count && DONE[job.action];
  return h('div', { class: 'stack' },
    h('h1', {}, sampled ? 'No event that failed lately has this error any more' : 'No event has this error any more'),
    empty(all || 'Its events may have been delivered, replayed or dropped.', h('p', {}, h('a', { href: href(box, 'incidents') }, 'All incidents'))));
}

function incidentOf(box, { group, timeline: entries, blocked_keys: blocked, failed, delivered }, seen) {
  const filter = { state: group.state, group: group.group };
  const number = `${about(group)}${count(group.count)}`;
  const act = (action) => () => actOnMany(box, action, filter, `${about(group)}${counted(group.count, 'event')}`, seen);
  const dead = group.state === 'DEAD';
  return h('div', { class: 'stack' },
    h('p', { class: 'crumbs' }, h('a', { href: href(box, 'incidents') }, 'Incidents')),
    h('h1', { class: 'error' }, titleOf(group)),
    facts([
      ['Events', h('a', { href: href(box, 'events', null, filter), title: group.estimated ? 'Estimated from a sample of the newest events.' : null }, `${number} ${dead ? 'dead' : 'pending'}`)],
      ['Types', group.event_types.map((type, index) => [index > 0 && ', ', h('a', { href: href(box, 'events', null, { ...filter, type }) }, type)])],
      ['First', dead ? moment(group.first_seen) : h('span', { class: 'muted' }, 'Not known: a retry keeps the time of the last attempt only')],
      [dead ? 'Last' : 'Last attempt', moment(group.last_seen)],
      ['Blocked keys', blocked.length ? h('a', { href: href(box, 'keys') }, count(blocked.length)) : null],
      ['Last event', eventId(box, group.sample_id)],
    ]),
    mayOperate() && h('div', { class: 'actions' },
      dead && h('button', { type: 'button', class: 'primary', 'data-shortcut': 'r', onclick: act('replay') }, `Replay ${number}…`),
      dead && h('span', { class: 'muted' }, group.count > 1 ? 'preview, then a canary, then all at a rate you choose' : 'preview first'),
      h('span', { class: 'grow' }),
      h('button', { type: 'button', onclick: act('export') }, 'Export…'),
      dead && h('button', { type: 'button', class: 'danger', onclick: act('drop') }, 'Drop…'),
      !dead && h('button', { type: 'button', class: 'danger', onclick: act('kill') }, 'Kill…')),
    entries.length > 0 && section('Timeline', null, timeline(entries),
      h('details', {}, h('summary', {}, `All ${counted(entries.length, 'entry', 'entries')}`),
        h('ol', { class: 'entries' }, entries.slice(0, MOST).map((entry) => h('li', {}, h('time', { datetime: entry.at, title: entry.at }, time(entry.at)), h('span', { class: entry.kind, 'aria-hidden': 'true' }, markOf(entry.kind).shape), h('span', {}, entry.text)))))),
    failed && section('Payload', h('span', { class: 'muted' }, 'failed ', eventId(box, failed.event_id), delivered && ' and delivered ', delivered && eventId(box, delivered.event_id)), sideBySide(failed, delivered)),
    blocked.length > 0 && section('Ordering keys behind it', null, h('ul', { class: 'chips' }, blocked.slice(0, 50).map(({ key }) => h('li', {}, h('a', { class: 'chip', href: href(box, 'keys', key) }, key))))));
}
