// One incident: when it failed and what happened then, which keys it blocks, what is different in its payload, and the replay.

import { h } from '../dom.js';
import { get, query, segment } from '../api.js';
import { markOf, timeline } from '../chart.js';
import { count, counted, time } from '../format.js';
import { href } from '../router.js';
import { mayOperate } from '../store.js';
import { eventId, facts, load, moment, section } from '../parts.js';
import { sideBySide } from '../payload.js';
import { actOnMany } from '../jobs.js';

const MOST = 200; // entries of the timeline in the list

export function incident(root, { box, name, query: asked }, signal) {
  const state = asked.get('state') || '';
  load(root, signal, () => get(box, `error-groups/${segment(name)}${query({ state })}`, { signal, exact: true }), (found) => incidentOf(box, found));
}

function incidentOf(box, { group, timeline: entries, blocked_keys: blocked, failed, delivered }) {
  const filter = { state: group.state || 'DEAD', group: group.group || group.fingerprint };
  const act = (action) => () => actOnMany(box, action, filter, counted(group.count, 'event'));
  const dead = filter.state === 'DEAD';
  return h('div', { class: 'stack' },
    h('p', { class: 'crumbs' }, h('a', { href: href(box, 'incidents', null, { state: group.state }) }, 'Incidents')),
    h('h1', { class: 'error' }, group.error || group.example || group.fingerprint),
    facts([
      ['Events', h('a', { href: href(box, 'events', null, filter) }, `${count(group.count)} ${dead ? 'dead' : 'retrying'}`)],
      ['Types', group.event_types.join(', ')],
      ['First', moment(group.first_seen)],
      ['Last', moment(group.last_seen)],
      ['Blocked keys', count(blocked.length)],
      ['Sample', eventId(box, group.sample_id)],
    ]),
    mayOperate() && h('div', { class: 'actions' },
      dead && h('button', { type: 'button', class: 'primary', 'data-shortcut': 'r', onclick: act('replay') }, `Replay ${count(group.count)}…`),
      dead && h('span', { class: 'muted' }, 'preview, then a canary of 20, then all at a rate you choose'),
      h('span', { class: 'grow' }),
      h('button', { type: 'button', onclick: act('export') }, 'Export…'),
      dead && h('button', { type: 'button', class: 'danger', onclick: act('drop') }, 'Drop…'),
      !dead && h('button', { type: 'button', class: 'danger', onclick: act('kill') }, 'Kill…')),
    entries.length > 0 && section('Timeline', null, timeline(entries),
      h('details', {}, h('summary', {}, `All ${counted(entries.length, 'entry').replace('entrys', 'entries')}`),
        h('ol', { class: 'entries' }, entries.slice(0, MOST).map((entry) => h('li', {}, h('time', { datetime: entry.at, title: entry.at }, time(entry.at)), h('span', { class: entry.kind, 'aria-hidden': 'true' }, markOf(entry.kind).shape), h('span', {}, entry.text)))))),
    failed && section('Payload', h('span', { class: 'muted' }, 'failed ', eventId(box, failed.event_id), delivered && ' and delivered ', delivered && eventId(box, delivered.event_id)), sideBySide(failed, delivered)),
    blocked.length > 0 && section('Ordering keys behind it', null, h('ul', { class: 'chips' }, blocked.slice(0, 50).map((each) => {
      const key = typeof each === 'string' ? each : each.key;
      return h('li', {}, h('a', { class: 'chip', href: href(box, 'keys', key) }, key));
    }))));
}
