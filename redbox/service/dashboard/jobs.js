// Changes of many events, done by the server: preview with the count, canary, all with a rate; progress, cancel, pause.

import { h, update } from './dom.js';
import { get, post, remove, segment, send } from './api.js';
import { announce, field, openDialog, reasonField } from './dialogs.js';
import { count, counted, duration } from './format.js';
import { href } from './router.js';
import { pause } from './actions.js';

const CANARY = 20;
const RATE = 50; // events per second
const POLL = 1000; // ms

export const BULK_ACTIONS = {
  replay: { verb: 'Replay', done: 'returned to PENDING and delivered again', canary: true, rate: true },
  reschedule: { verb: 'Reschedule', done: 'due after the delay', delay: true },
  kill: { verb: 'Kill', done: 'DEAD, and not delivered until someone replays them', danger: true },
  drop: { verb: 'Drop', done: 'removed for good. This cannot be undone', danger: true },
  export: { verb: 'Export', done: 'written to a file as NDJSON' },
};

export const ended = (job) => ['done', 'failed', 'cancelled'].includes(job.state);
const WORDS = { running: 'Running', waiting_for_canary: 'Waiting for the canary', done: 'Done', failed: 'Stopped', cancelled: 'Cancelled' };
const SYMBOLS = { running: '▶', waiting_for_canary: '◷', done: '✓', failed: '✕', cancelled: '■' };

/** Opens the preview of an action on all events that match the filter. */
export function actOnMany(box, action, filter, what) {
  const about = BULK_ACTIONS[action];
  return openDialog(`${about.verb} ${what}`, (close) => {
    const body = h('div', { class: 'wizard' });
    const steps = ['Preview', ...(about.canary ? ['Canary'] : []), 'All'];
    const show = (step, ...content) => update(body,
      h('ol', { class: 'wizard-steps' }, steps.map((name, index) => h('li', { 'aria-current': index === step ? 'step' : null, class: index < step ? 'past' : null }, name))),
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
      const total = result.count ?? result.matched ?? 0;
      const refused = result.refused_count ?? 0;
      if (!total) {
        show(0, h('p', {}, 'No event matches any more. Nothing would be changed.'), h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'primary', onclick: () => close() }, 'Close')));
        return;
      }
      const canary = h('input', { type: 'number', min: 0, max: 1000, value: Math.min(CANARY, total) });
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
          progress(await post(box, 'jobs', job), Boolean(job.canary));
        } catch (error) {
          update(wrong, h('p', {}, error.message));
          button.disabled = false;
        }
      };
      show(0, h('form', { onsubmit: submit },
        h('p', { class: 'preview' }, result.complete === false && 'At least ', h('strong', {}, counted(total, 'event')), ` ${total === 1 ? 'matches' : 'match'} and would be ${about.done}.`),
        refused > 0 && h('p', {}, `${counted(refused, 'event')} would be refused.`),
        (result.conflicts || 0) > 0 && h('p', {}, `${counted(result.conflicts, 'event')} cannot be replayed: another live event holds the unique key.`),
        h('p', {}, h('a', { href: href(box, 'events', null, filter), onclick: () => close() }, 'See these events')),
        about.canary && h('div', { class: 'fields' },
          field('Canary', canary, 'Replayed first. If one of them dies again, the rest stays where it is. 0: no canary.'),
          field('Events per second', rate, 'Of the rest. 0: no limit.')),
        length,
        about.delay && field('Delay', delay, 'From now, for example 30s, 10m or 1h.'),
        reasonField(reason), wrong,
        h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => close() }, 'Cancel'), button)));
      (about.canary ? canary : about.delay ? delay : reason).focus();
    }

    async function progress(job, canary) {
      for (let current = job; body.isConnected; ) {
        const step = canary && (current.state === 'waiting_for_canary' || (!ended(current) && current.done < CANARY)) ? 1 : steps.length - 1;
        show(step, jobProgress(box, current, close));
        if (ended(current)) return;
        await new Promise((resolve) => setTimeout(resolve, POLL));
        try {
          current = await get(box, `jobs/${segment(job.id)}`);
        } catch (error) {
          current = { ...current, text: error.message };
        }
      }
    }
  }, { wide: true });
}

/** A running or ended job: a bar, its words, and what can be done about it. */
function jobProgress(box, job, close) {
  const cancel = async () => {
    try {
      await remove(box, `jobs/${segment(job.id)}`);
      announce('Cancelled. What was done stays done.');
    } catch (error) {
      announce(error.message, { bad: true });
    }
  };
  return h('div', { class: `job job-${job.state}` },
    h('p', { role: 'status' }, h('span', { 'aria-hidden': 'true' }, `${SYMBOLS[job.state] || '▶'} `), h('strong', {}, WORDS[job.state] || job.state), job.text ? `: ${job.text}` : ''),
    bar(job),
    job.problem && h('p', { class: 'wrong', role: 'alert' }, problemText(job.problem)),
    h('div', { class: 'buttons' },
      !ended(job) && h('button', { type: 'button', onclick: () => pause(box) }, 'Pause the box…'),
      !ended(job) && h('button', { type: 'button', class: 'danger', onclick: cancel }, 'Cancel the rest'),
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

const problemText = (problem) => (typeof problem === 'string' ? problem : problem.detail || problem.title || 'The job failed.');

function bar(job) {
  const total = job.total || 0;
  return h('div', { class: 'job-bar' },
    h('progress', { max: total || 1, value: job.done || 0, 'aria-label': `${job.action}: ${count(job.done)} of ${count(total)}` }),
    h('span', {}, total ? `${count(job.done)} of ${count(total)}` : count(job.done)));
}

/** The bar at the bottom of the page: jobs that run. */
export function tray(box, jobs) {
  const running = (jobs || []).filter((job) => !ended(job));
  return running.map((job) => h('div', { class: 'tray-job', 'data-key': job.id },
    h('span', {}, h('strong', {}, BULK_ACTIONS[job.action]?.verb || job.action), ` ${job.text || ''}`), bar(job),
    h('button', { type: 'button', onclick: () => watchJob(box, job) }, 'Show')));
}

/** Shows a job that runs in the background. */
export function watchJob(box, job) {
  return openDialog(`${BULK_ACTIONS[job.action]?.verb || job.action} in box ${box}`, (close) => {
    const body = h('div', {});
    const poll = async () => {
      for (let current = job; ; ) {
        update(body, jobProgress(box, current, close));
        if (ended(current)) return;
        await new Promise((resolve) => setTimeout(resolve, POLL));
        if (!body.isConnected) return;
        current = await get(box, `jobs/${segment(job.id)}`).catch((error) => ({ ...current, text: error.message }));
      }
    };
    poll();
    return body;
  });
}
