// One store of state. Listeners run once for all changes of a frame, and not at all in a hidden tab.

const listeners = new Set();
let scheduled = false;

/**
 * service: the answer of GET /v1. box: the name of the box. connection: connecting, live, lost or resting. problem: why it is lost.
 * live: {stats, why, rates_last, relays, groups, dead_groups, retrying_groups, sampled, counted_at, jobs} of the box, as far as they are known.
 */
export const state = { service: null, box: null, connection: 'connecting', problem: null, live: {} };

export function change(values) {
  Object.assign(state, values);
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const listener of [...listeners]) listener(state);
  });
}

/** Calls the listener after each change, until the returned function is called. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether this page may change anything. */
export function mayOperate() {
  return Boolean(state.service) && !state.service.read_only;
}

/** Runs the listener now and after each change, until the signal of the view says that it was left. */
export function watch(signal, listener) {
  const end = subscribe(listener);
  signal.addEventListener('abort', end);
  listener(state);
}
