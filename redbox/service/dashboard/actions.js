// What a person can change: pause and resume, and one event. Every change is asked for first, with a reason for the log.

import { h } from './dom.js';
import { post, segment } from './api.js';
import { announce, ask, field } from './dialogs.js';
import { state } from './store.js';
import { shortId } from './format.js';

const option = (value, text) => h('option', { value }, text);

/** Pauses the box, or one ordering key, with an end or without. Resolves with true once it is done. */
export async function pause(box, key = null) {
  const what = key === null ? `box ${box}` : `ordering key ${key}`;
  const until = h('select', {}, option('', 'someone resumes it'), option('10m', '10 minutes have passed'), option('1h', 'an hour has passed'), option('8h', '8 hours have passed'));
  const done = await ask({
    title: `Pause ${what}`,
    text: `No relay claims an event of ${what} until the pause ends. Puts continue, and events in flight can still be delivered.`,
    fields: [field('The pause ends when', until)],
    verb: 'Pause',
    run: async (why) => {
      await post(box, 'pause', { why, ...(until.value ? { duration: until.value } : {}), ...(key === null ? {} : { key }) });
      return true;
    },
  });
  if (done) announce(`Paused ${what}.`);
  return Boolean(done);
}

/** Ends a pause; of a box, over a ramp if wanted. */
export async function resume(box, key = null) {
  const what = key === null ? `box ${box}` : `ordering key ${key}`;
  const ramp = h('select', {}, option('', 'at once'), option('1m', 'within a minute'), option('5m', 'within 5 minutes'), option('30m', 'within 30 minutes'));
  const done = await ask({
    title: `Resume ${what}`,
    text: `Relays claim events of ${what} again.`,
    fields: key === null ? [field('Full rate', ramp, 'A target that has just recovered is not flooded if the rate grows slowly.')] : [],
    verb: 'Resume',
    run: async (why) => {
      await post(box, 'resume', { why, ...(key === null && ramp.value ? { ramp: ramp.value } : {}), ...(key === null ? {} : { key }) });
      return true;
    },
  });
  if (done) announce(`Resumed ${what}.`);
  return Boolean(done);
}

/** Pauses the box, or resumes it if it is paused. */
export const pauseOrResume = (box) => (state.live.stats?.paused ? resume(box) : pause(box));

/** What can be done with one event: in which states, and what it means. */
export const EVENT_ACTIONS = [
  { name: 'replay', verb: 'Replay', states: ['DEAD', 'PUBLISHED'], shortcut: 'r', text: 'The event is returned to PENDING and delivered again, with its attempts reset.', delay: true },
  { name: 'reschedule', verb: 'Reschedule', states: ['PENDING'], text: 'The event becomes due after the delay, instead of at its present time.', delay: true },
  { name: 'release', verb: 'Release', states: ['CLAIMED'], text: 'The claim ends now, and the event is returned to PENDING. If its relay is publishing it, it may be delivered twice.' },
  { name: 'kill', verb: 'Kill', states: ['PENDING', 'CLAIMED'], danger: true, text: 'The event becomes DEAD and is not delivered, until someone replays it.' },
  { name: 'drop', verb: 'Drop', states: ['DEAD'], danger: true, text: 'The event is removed for good. This cannot be undone.' },
];

/** Asks for one action on one event and does it. Resolves with true once it is done. */
export async function actOnEvent(box, record, action) {
  const delay = h('input', { type: 'text', placeholder: '0s', autocomplete: 'off' });
  const done = await ask({
    title: `${action.verb} event ${shortId(record.event_id)}`,
    text: [action.text, `It is of type ${record.event_type}${record.ordering_key ? `, with ordering key ${record.ordering_key}` : ''}.`],
    fields: action.delay ? [field('Delay', delay, 'For example 30s, 10m or 1h. Empty: no delay.')] : [],
    verb: action.verb,
    danger: action.danger,
    run: async (why) => {
      const body = { why, ...(delay.value.trim() ? { delay: delay.value.trim() } : {}) };
      await post(box, `events/${segment(record.event_id)}/${action.name}`, body); // a refusal is a problem, which is thrown
      return true;
    },
  });
  if (done) announce(`${action.verb}: done.`);
  return Boolean(done);
}
