// Keys: ordering keys that wait, and why; keys that are paused.

import { h } from '../dom.js';
import { get, segment } from '../api.js';
import { go, href } from '../router.js';
import { mayOperate } from '../store.js';
import { empty, eventId, explanation, load, moment, section, table } from '../parts.js';
import { pause, resume } from '../actions.js';

export function keys(root, { box, name }, signal) {
  const one = h('div', {});
  const all = h('div', {});
  root.append(h('h1', {}, 'Ordering keys'), search(box, name), one, all);
  if (name) load(one, signal, () => get(box, `keys/${segment(name)}/why`, { signal }), (why) => keyOf(box, name, why));
  const again = load(all, signal, () => get(box, 'keys', { signal }), (found) => lists(box, found, () => again()));
}

function search(box, name) {
  const input = h('input', { type: 'search', value: name || '', 'aria-label': 'Ordering key', placeholder: 'Ordering key, such as order-7', autocomplete: 'off', spellcheck: 'false' });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) go(href(box, 'keys', input.value.trim()));
  };
  return h('form', { class: 'inline', onsubmit: submit }, input, h('button', { type: 'submit' }, 'Explain'));
}

function keyOf(box, key, why) {
  const actions = [h('a', { class: 'button', href: href(box, 'events', null, { key }) }, 'Its events')];
  const paused = why.situation === 'key_paused';
  if (mayOperate()) actions.push(h('button', { type: 'button', onclick: () => (paused ? resume(box, key) : pause(box, key)) }, paused ? 'Resume…' : 'Pause…'));
  return section(`Key ${key}`, null, explanation(why, box, { actions }));
}

/** Columns of blocked keys; the overview shows them too. */
export function blockedColumns(box) {
  return [
    { title: 'Key', class: 'wrap', cell: (each) => h('a', { href: href(box, 'keys', each.key), 'data-row': true }, each.key) },
    { title: 'Head', cell: (each) => (each.head ? eventId(box, each.head) : '–') },
    { title: 'Why', cell: (each) => each.why || '–' },
    { title: 'Since', class: 'nowrap', cell: (each) => moment(each.since) },
  ];
}

function lists(box, { blocked, paused }, again) {
  const resumeAndRead = (key) => async () => {
    if (await resume(box, key)) again();
  };
  return h('div', { class: 'stack' },
    section('Blocked', null, blocked.length
      ? table('Blocked keys', blockedColumns(box), blocked, (each) => each.key)
      : empty('No ordering key is blocked.', h('p', {}, 'A key whose first event is dead, retried or paused holds back the events behind it. It would be listed here.'))),
    section('Paused', null, paused.length
      ? table('Paused keys', [
        { title: 'Key', class: 'wrap', cell: (each) => h('a', { href: href(box, 'keys', each.key), 'data-row': true }, each.key) },
        { title: 'By', cell: (each) => each.who || '–' },
        { title: 'Reason', cell: (each) => each.why || '–' },
        { title: 'Since', class: 'nowrap', cell: (each) => moment(each.since) },
        { title: 'Ends', class: 'nowrap', cell: (each) => (each.until ? moment(each.until) : 'when resumed') },
        { title: '', cell: (each) => mayOperate() && h('button', { type: 'button', 'aria-label': `Resume key ${each.key}`, onclick: resumeAndRead(each.key) }, 'Resume…') },
      ], paused, (each) => each.key)
      : empty('No ordering key is paused.')));
}
