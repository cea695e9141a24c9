// Requests to the service: JSON, the token, and problems as errors.

const KEY = 'redbox-token';
const LONGEST = 30000; // ms until the answer to a reading request begins
let ask = null; // asks a person for a token
let accepted = () => {}; // called when another token was accepted
let asking = null; // the promise of the question that is open

/** An error that the service or the network reported. `status` is 0 if there was no answer. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the service answered ${status}`);
    this.status = status;
    this.title = body.title || '';
    this.error = body.error || '';
    this.field = body.field || null;
  }
}

/** A number whose digits JavaScript would change, such as 12.50 or 12345678901234567890. */
export class ExactNumber {
  constructor(source) {
    this.source = source;
  }
}

/** Sets how a person is asked for a token, and what is done once the service accepts another one. */
export function askTokenWith(question, after) {
  ask = question;
  accepted = after;
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** Sends a request with the token and returns the response; asks for a token as long as the service answers 401. */
export async function send(path, options = {}) {
  for (let asked = false; ; asked = true) {
    const token = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, 'Redbox-Client': 'dashboard', ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const limit = new AbortController();
    const timer = (options.method || 'GET') === 'GET' && setTimeout(() => limit.abort(), LONGEST);
    const signal = AbortSignal.any([limit.signal, ...(options.signal ? [options.signal] : [])]);
    let response;
    try {
      response = await fetch(path, { ...options, headers, signal, credentials: 'same-origin', cache: 'no-store' });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Problem(0, { title: 'No answer', detail: 'The service does not answer. Is redbox running?' });
    } finally {
      clearTimeout(timer);
    }
    if (response.status !== 401) {
      if (asked) accepted();
      if (!response.ok) throw new Problem(response.status, await bodyOf(response));
      return response;
    }
    if (token === sessionStorage.getItem(KEY)) await newToken(token !== null, await bodyOf(response));
  }
}

async function bodyOf(response) {
  try {
    return await response.json();
  } catch {
    return { title: response.statusText };
  }
}

async function newToken(refused, problem) {
  asking ||= ask(refused, problem).finally(() => {
    asking = null;
  });
  sessionStorage.setItem(KEY, await asking);
}

/** The JSON of an answer. With `exact`, numbers keep their digits where the browser can tell them. */
export async function call(method, path, { body, signal, exact = false } = {}) {
  const options = { method, signal, headers: { Accept: 'application/json' } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers['Content-Type'] = 'application/json';
  }
  const response = await send(path, options);
  const text = await response.text();
  if (!text) return null;
  return JSON.parse(text, exact ? keepDigits : undefined);
}

function keepDigits(_, value, context) {
  if (typeof value !== 'number' || !context || String(value) === context.source) return value;
  return new ExactNumber(context.source);
}

const path = (box, rest) => `v1/boxes/${encodeURIComponent(box)}/${rest}`;

export const get = (box, rest, options) => call('GET', path(box, rest), options);
export const post = (box, rest, body) => call('POST', path(box, rest), { body });
export const patch = (box, rest, body) => call('PATCH', path(box, rest), { body });
export const remove = (box, rest) => call('DELETE', path(box, rest));
export const segment = encodeURIComponent;

/** `?a=1&b=2` without the empty ones. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return given.length ? `?${new URLSearchParams(given)}` : '';
}
