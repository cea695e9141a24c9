// Changes of many events, done by the server: preview with the count, canary, all with a rate; progress, cancel, pause.

import { h, update } from './dom.js';
import { get, post, remove, segment, send } from './api.js';
import { announce, field, openDialog, reasonField } from './dialogs.js';
import { count, counted, duration } from './format.js';
import { href } from './router.js';
import { mayOperate } from './store.js';
import { pause } from './actions.js';

const CANARY = 20; // events at most, if nothing else is typed
const RATE = 50; // events per second
const POLL = 1000; // ms

const HOLD = 'Too early? Pause the box to hold back the events that are not delivered yet.';

export const BULK_ACTIONS = {
  replay: { verb: 'Replay', done: 'returned to PENDING and delivered again', canary: true, rate: true, undo: HOLD },
  reschedule: { verb: 'Reschedule', done: 'due after the delay', delay: true, undo: HOLD },
  kill: { verb: 'Kill', done: 'DEAD, and not delivered until someone replays them', danger: true },
  drop: { verb: 'Drop', done: 'removed for good. This cannot be undone', danger: true },
  export: { verb: 'Export', done: 'written to a file as NDJSON' },
};

const JOB_STATES = {
  running: { word: 'Running', symbol: '▶' },
  waiting_for_canary: { word: 'Waiting for the canary', symbol: '◷' },
  done: { word: 'Done', symbol: '✓', ended: true },
  failed: { word: 'Stopped', symbol: '✕', ended: true },
  cancelled: { word: 'Cancelled', symbol: '■', ended: true },
};
/** Whether the job has come to its end, whatever that is. */
export const ended = (job) => Boolean(JOB_STATES[job.state].ended);

/** Whether a job still replays or awaits its canary of `canary` events; `waited`: it was seen to wait for it. */
export function canaryRuns(job, canary, waited) {
  if (!canary || ended(job)) return false;
  return job.state === 'waiting_for_canary' || (!waited && job.done <= canary);
}

/** The size of the canary of `total` events, if nothing else is typed: a fifth, so that most are left if it fails. */
export const canaryOf = (total) => (total < 2 ? 0 : Math.max(1, Math.min(CANARY, Math.floor(total / 5))));

/** How the canary of an ended job failed; null if it did not, or if there was none. */
const failedCanary = (job) => (job.result?.canary?.passed === false ? job.result.canary : null);

/** Opens the preview of an action on all events that match the filter. `seen` is called with the job whenever it is looked at. */
export function actOnMany(box, action, filter, what, seen = () => {}) {
  const about = BULK_ACTIONS[action];
  return openDialog(`${about.verb} ${what}`, (close) => {
    const body = h('div', { class: 'wizard' });
    const steps = ['Preview', ...(about.canary ? ['Canary'] : []), 'All'];
    const show = (step, ...content) => draw(step, 'current', content);
    const draw = (step, how, content) => update(body,
      h('ol', { class: 'wizard-steps' }, steps.map((name, index) => h('li', { 'aria-current': index === step ? 'step' : null, class: index < step ? 'past' : index === step ? how : null }, name))),
      content);
    preview();
    return body;

    async function preview() {
      show(0, h('p', { class: 'loading', role: 'status' }, 'Counting the events that match…'));
      try {
        form(await post(box, 'jobs', { action, filter, dry_run: true, why: '' }));
      } catch (error) {
        show(0, h('p', { class: 'wrong', role: 'alert' }, error.message),
          h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => close() }, 'Close'), h('button', { type: 'button', class: 'primary', onclick: preview }, 'Try again')));
      }
    }

    function form(result) {
      const { count: total, refused_count: refused } = result;
      if (!total) {
        show(0, h('p', {}, 'No event matches any more. Nothing would be changed.'), h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'primary', onclick: () => close() }, 'Close')));
        return;
      }
      const canary = h('input', { type: 'number', min: 0, max: 1000, value: canaryOf(total) });
      const rate = h('input', { type: 'number', min: 0, step: 'any', value: RATE });
      const delay = h('input', { type: 'text', placeholder: '10m', required: true, autocomplete: 'off' });
      const reason = h('input', { type: 'text', autocomplete: 'off', maxlength: 500 });
      const wrong = h('div', { class: 'wrong', role: 'alert' });
      const button = h('button', { type: 'submit', class: about.danger ? 'danger' : 'primary' });
      const label = () => {
        button.textContent = about.canary && Number(canary.value) ? `Replay ${count(Math.min(Number(canary.value), total))} first` : `${about.verb} ${counted(total, 'event')}`;
      };
      const length = h('p', { class: 'muted', role: 'status' });
      const estimate = () => {
        update(length, about.rate && Number(rate.value) > 0 && total > Number(rate.value) && `At this rate it takes about ${duration(total / Number(rate.value))}.`);
      };
      canary.oninput = label;
      rate.oninput = estimate;
      label();
      estimate();
      const submit = async (event) => {
        event.preventDefault();
        button.disabled = true;
        update(wrong);
        const job = { action, filter, why: reason.value.trim() };
        if (about.canary && Number(canary.value)) job.canary = Number(canary.value);
        if (about.rate && Number(rate.value)) job.rate = Number(rate.value);
        if (about.delay) job.delay = delay.value.trim();
        try {
          progress(await post(box, 'jobs', job), job.canary || 0);
        } catch (error) {
          update(wrong, h('p', {}, error.message));
          button.disabled = false;
        }
      };
      show(0, h('form', { onsubmit: submit },
        h('p', { class: 'preview' }, !result.complete && 'At least ', h('strong', {}, counted(total, 'event')), ` ${total === 1 ? 'matches' : 'match'} and would be ${about.done}.`),
        result.obstacle && h('p', { class: 'warn', role: 'alert' }, h('span', { 'aria-hidden': 'true' }, '! '), `At the moment ${result.obstacle}: the events would wait in the box, and a canary would not be published.`),
        refused > 0 && h('p', {}, `${counted(refused, 'event')} would be refused.`),
        result.conflicts > 0 && h('p', {}, `${counted(result.conflicts, 'event')} cannot be replayed: another live event holds the unique key.`),
        h('p', {}, h('a', { href: href(box, 'events', null, filter), onclick: () => close() }, 'See these events')),
        about.canary && h('div', { class: 'fields' },
          field('Canary', canary, 'Replayed first. If one of them is DEAD again, the rest stays where it is. 0: no canary.'),
          field('Events per second', rate, 'Of the rest. 0: no limit.')),
        length,
        about.delay && field('Delay', delay, 'From now, for example 30s, 10m or 1h.'),
        reasonField(reason), wrong,
        h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => close() }, 'Cancel'), button)));
      (about.canary ? canary : about.delay ? delay : reason).focus();
    }

    function progress(job, canary) {
      let waited = false;
      return watch(box, job, body, (current) => {
        waited ||= current.state === 'waiting_for_canary';
        seen(current);
        if (failedCanary(current)) draw(1, 'failed', jobProgress(box, current, close, preview));
        else show(canaryRuns(current, canary, waited) ? 1 : steps.length - 1, jobProgress(box, current, close));
      });
    }
  }, { wide: true });
}

/** Draws a job now and once a second, until it has ended or `body` is no longer shown. */
async function watch(box, job, body, draw) {
  for (let current = job; ; ) {
    draw(current);
    if (ended(current)) {
      seen.add(current.id);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (!body.isConnected) return;
    current = await get(box, `jobs/${segment(job.id)}`).catch((error) => ({ ...current, text: error.message }));
  }
}

/** The text of a job after the word of its state, which is not said twice. */
function inWords(word, text) {
  if (text.startsWith(`${word.toLowerCase()} `)) return text.slice(word.length);
  return text ? `: ${text}` : '';
}

/** A running or ended job: a bar, its words, and what can be done about it; `again` begins another after a canary that failed. */
function jobProgress(box, job, close, again) {
  const cancel = async () => {
    try {
      await remove(box, `jobs/${segment(job.id)}`);
      announce('Cancelled. What was done stays done.');
    } catch (error) {
      announce(error.message, { bad: true });
    }
  };
  const { word, symbol } = JOB_STATES[job.state];
  const canary = failedCanary(job);
  const undone = ended(job) && job.done > 0 && !canary && BULK_ACTIONS[job.action].undo;
  const [bad] = canary ? [...Object.keys(canary.died), ...canary.gone, ...canary.unsettled] : [];
  return h('div', { class: `job job-${job.state}` },
    h('p', { role: 'status' }, h('span', { 'aria-hidden': 'true' }, `${symbol} `), h('strong', {}, word), inWords(word, job.text)),
    bar(job),
    job.problem && h('p', { class: 'wrong', role: 'alert' }, job.problem),
    canary && job.total > job.done && h('p', {}, `${counted(job.total - job.done, 'event')} ${job.total - job.done === 1 ? 'was' : 'were'} not touched.`),
    undone && h('p', { class: 'muted' }, undone),
    h('div', { class: 'buttons' },
      (!ended(job) || undone) && mayOperate() && h('button', { type: 'button', onclick: () => pause(box) }, 'Pause the box…'),
      !ended(job) && h('button', { type: 'button', class: 'danger', onclick: cancel }, 'Cancel the rest'),
      bad && h('a', { class: 'button', href: href(box, 'event', bad), onclick: () => close() }, Object.keys(canary.died).length ? 'Look at the error' : 'Look at one of them'),
      canary && again && h('button', { type: 'button', onclick: again }, 'Replay again'),
      job.action === 'export' && job.state === 'done' && h('button', { type: 'button', onclick: () => download(box, job) }, 'Download'),
      h('button', { type: 'button', class: 'primary', onclick: () => close() }, ended(job) ? 'Close' : 'Continue in the background')));
}

/** Saves the file of an export. A plain link could not send the token. */
async function download(box, job) {
  try {
    const response = await send(`v1/boxes/${segment(box)}/jobs/${segment(job.id)}/export`);
    const url = URL.createObjectURL(await response.blob());
    h('a', { href: url, download: `${box}-${job.id}.ndjson` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  } catch (error) {
    announce(error.message, { bad: true });
  }
}

function bar(job) {
  const words = job.total === null ? counted(job.done, 'event') : `${count(job.done)} of ${count(job.total)}`;
  return h('div', { class: 'job-bar' }, h('progress', { max: job.total || 1, value: job.done, 'aria-label': `${job.action}: ${words}` }), h('span', {}, words));
}

const started = new Set(); // ids of the jobs that this page saw running
const told = new Set(); // ids of those whose end was announced
const seen = new Set(); // ids of those whose end someone has looked at

/** The bar at the bottom of the page: jobs that run, and those that ended in the background, until someone looks at them. */
export function tray(box, jobs) {
  const shown = jobs.filter((job) => !seen.has(job.id) && (!ended(job) || started.has(job.id)));
  for (const job of shown) {
    started.add(job.id);
    if (!ended(job) || told.has(job.id)) continue;
    told.add(job.id);
    if (!document.querySelector('dialog .job')) announce(`${BULK_ACTIONS[job.action].verb}: ${stateInWords(job)}.`, { bad: job.state === 'failed' });
  }
  return shown.map((job) => h('div', { class: `tray-job job-${job.state}`, 'data-key': job.id },
    h('span', {}, h('strong', {}, BULK_ACTIONS[job.action].verb), ' ', ended(job) ? [h('span', { 'aria-hidden': 'true' }, `${JOB_STATES[job.state].symbol} `), stateInWords(job)] : job.text), bar(job),
    h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => watchJob(box, job) }, 'Show'),
      ended(job) && h('button', { type: 'button', class: 'plain icon', 'aria-label': `Hide: ${BULK_ACTIONS[job.action].verb} ${stateInWords(job)}`, onclick: (event) => hide(job, event.currentTarget) }, '✕'))));
}

function hide(job, button) {
  const bars = button.closest('#tray');
  seen.add(job.id);
  button.closest('.tray-job').remove();
  bars.hidden = !bars.children.length;
}

const stateInWords = (job) => `${JOB_STATES[job.state].word}${inWords(JOB_STATES[job.state].word, job.text)}`;

/** Shows a job that runs in the background. */
export function watchJob(box, job) {
  return openDialog(`${BULK_ACTIONS[job.action].verb} in box ${box}`, (close) => {
    const body = h('div', {});
    watch(box, job, body, (current) => update(body, jobProgress(box, current, close)));
    return body;
  });
}
