// Numbers, durations and times as text.

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const minute = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const UNITS = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];

export const count = (number) => (number === null || number === undefined ? '–' : whole.format(number));
export const compact = (number) => (number < 10000000 ? count(number) : short.format(number));

/** `1 event`, `1,250 events`. */
export const counted = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

/** `0.3`, `12`, `1,250`; a dash if it is not known. */
export function rate(number) {
  if (number === null || number === undefined) return '–';
  if (number === 0) return '0';
  return number >= 10 ? whole.format(Math.round(number)) : number.toFixed(number < 0.1 ? 2 : 1);
}

/** To two units, as the service writes them: `250 ms`, `4.3 s`, `5 min 2 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 1) return `${Math.trunc(seconds * 1000)} ms`;
  if (seconds < 10 && !Number.isInteger(seconds)) return `${seconds.toFixed(1)} s`;
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = UNITS[first];
  const [smaller, part] = UNITS[first + 1] || ['s', 1];
  const rest = Math.floor((seconds % size) / part);
  return `${whole.format(Math.floor(seconds / size))} ${unit}${rest ? ` ${rest} ${smaller}` : ''}`;
}

export const milliseconds = (number) => (number === null || number === undefined ? '–' : duration(number / 1000));

/** The age of a moment, without the seconds of minutes and the hours of days: `12 min ago`, `in 5 s`, `2 h 5 min ago`. */
export function ago(moment, now = Date.now()) {
  const seconds = (now - new Date(moment)) / 1000;
  if (Math.abs(seconds) < 1) return 'now';
  const length = seconds > 0 ? Math.floor(seconds) : Math.ceil(-seconds);
  const text = duration(length - (length % (length < 60 ? 1 : length < 2 * 86400 ? 60 : 86400)));
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

/** The local time: `03:12:01`, with the date if it is another day; with `exact` to milliseconds. */
export function time(moment, { exact = false } = {}) {
  const date = new Date(moment);
  const text = clock.format(date) + (exact ? `.${String(date.getMilliseconds()).padStart(3, '0')}` : '');
  return date.toDateString() === new Date().toDateString() ? text : `${day.format(date)} ${text}`;
}

/** The local time: `03:12`, with the date if it is another day. */
export function hourAndMinute(moment) {
  const date = new Date(moment);
  return `${date.toDateString() === new Date().toDateString() ? '' : `${day.format(date)} `}${minute.format(date)}`;
}

/** A text of a message: at most 200 characters. */
export const shortened = (text) => (text.length > 200 ? `${text.slice(0, 200)}…` : text);

/** A long id, shortened in the middle. */
export const shortId = (id) => (id.length > 18 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id);
