// The live feed: server-sent events read by fetch, which can send a token where EventSource cannot.

import { Problem, send, query } from './api.js';
import { change, state } from './store.js';

const SILENCE = 30000; // ms without a byte after which the connection counts as lost
const LONGEST_WAIT = 15000; // ms between two attempts to connect

let current = null;

/** Follows a box; the feed of the box before it ends. */
export function follow(box) {
  if (current) current.stop();
  change({ box, live: {}, connection: 'connecting', problem: null });
  current = new Feed(box);
  if (document.hidden) change({ connection: 'resting' });
  else current.start();
}

/** Ends the connection until the reader comes back. */
export function rest() {
  current.stop();
  change({ connection: 'resting' });
}

/** The reader comes back to the tab, or leaves it: a hidden tab asks for nothing. */
document.addEventListener('visibilitychange', () => {
  if (!current) return;
  if (document.hidden) rest();
  else current.start();
});

class Feed {
  constructor(box) {
    this.box = box;
    this.last = null; // the id of the last event
    this.abort = null;
  }

  stop() {
    if (this.abort) this.abort.abort();
    this.abort = null;
  }

  async start() {
    if (this.abort) return;
    const abort = (this.abort = new AbortController());
    for (let wait = 1000; !abort.signal.aborted; wait = Math.min(wait * 2, LONGEST_WAIT)) {
      try {
        await this.read(abort.signal, () => {
          wait = 500;
        });
        if (!abort.signal.aborted) change({ connection: 'connecting' });
      } catch (error) {
        if (abort.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, { detail: 'The connection to the service was lost.' });
        change({ connection: 'lost', problem });
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async read(signal, onEvent) {
    const headers = { Accept: 'text/event-stream', ...(this.last ? { 'Last-Event-ID': this.last } : {}) };
    const silence = new AbortController();
    const either = AbortSignal.any([signal, silence.signal]);
    const response = await send(`v1/live${query({ box: this.box })}`, { headers, signal: either });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const timer = setTimeout(() => silence.abort(), SILENCE);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      text += value.replaceAll('\r\n', '\n');
      const blocks = text.split('\n\n');
      text = blocks.pop();
      for (const block of blocks) if (this.take(block)) onEvent();
    }
  }

  /** Applies one event; false for a comment. */
  take(block) {
    const fields = { event: 'message', data: '' };
    for (const line of block.split('\n')) {
      const [, name, value] = /^([a-z]+): ?(.*)$/s.exec(line) || [];
      if (name === 'data') fields.data += (fields.data && '\n') + value;
      else if (name) fields[name] = value;
    }
    if (!fields.data) return false;
    if (fields.id) this.last = fields.id;
    const parts = JSON.parse(fields.data);
    if (fields.event === 'snapshot') change({ live: parts, connection: 'live', problem: null });
    else if (fields.event === 'delta') change({ live: { ...state.live, ...parts }, connection: 'live', problem: null });
    else if (fields.event === 'problem') change({ connection: 'lost', problem: new Problem(parts.status || 0, parts) });
    return true;
  }
}
