// Charts as SVG: a line over time with the value under the pointer, and a timeline of marks.

import { h, s, update } from './dom.js';
import { count, counted, hourAndMinute, time } from './format.js';

const WIDTH = 300;
const HEIGHT = 56;
const ROOM = 0.8; // share of the height that the largest value takes
const TALLEST = 48; // height of the tallest bar of a timeline

/** A card with a title, the last value and a line for each series; pointer and arrow keys show the values of a moment. */
export class Chart {
  /** `series`: [{name, label?, kind}]; `text(value)` formats a value with its unit; the scale ends at `least` or above it; `link`: to what is counted. */
  constructor(title, series, text, least, link = null) {
    this.least = least;
    this.link = link;
    this.title = title;
    this.series = series;
    this.text = text;
    this.at = null; // the moment that the reader looks at, in ms
    this.samples = [];
    this.step = 0; // seconds between two samples
    this.head = h('div', { class: 'chart-head' });
    this.drawing = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    this.foot = h('div', { class: 'chart-foot' });
    this.plot = h('div', {
      class: 'chart-plot', tabindex: 0, role: 'img', 'aria-label': title,
      onpointermove: (event) => this.look(this.momentAt(event)),
      onpointerleave: () => this.look(null),
      onblur: () => this.look(null),
      onkeydown: (event) => this.move(event),
    }, this.drawing);
    this.element = h('div', { class: 'chart' }, this.head, this.plot, this.foot);
  }

  /** Draws samples [{at, ...}], the values of a series under its name, one for each `step` seconds. */
  draw(samples, step) {
    this.samples = samples;
    this.step = step;
    this.times = samples.map((sample) => Date.parse(sample.at));
    const values = samples.flatMap((sample) => this.series.map(({ name }) => sample[name])).filter(known);
    this.most = Math.max(...values, 0);
    this.render();
  }

  look(moment) {
    if (moment === this.at) return;
    this.at = moment;
    this.render();
  }

  move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.samples.length) return;
    event.preventDefault();
    this.look(this.times[Math.min(this.samples.length - 1, Math.max(0, this.shown() + step))]);
  }

  momentAt(event) {
    const { left, width } = this.plot.getBoundingClientRect();
    if (!this.samples.length) return null;
    return this.times[0] + ((event.clientX - left) / width) * (this.times.at(-1) - this.times[0]);
  }

  /** The index of the sample whose values are shown: the last one, or the one nearest to what the reader looks at. */
  shown() {
    if (this.at === null) return this.samples.length - 1;
    const distance = (index) => Math.abs(this.times[index] - this.at);
    return this.times.reduce((best, _, index) => (distance(index) < distance(best) ? index : best), 0);
  }

  render() {
    const { samples } = this;
    const shown = this.shown();
    const values = this.series.map(({ name }) => this.text(samples[shown]?.[name]));
    update(this.head, this.link ? h('a', { class: 'chart-title', href: this.link }, this.title) : h('span', { class: 'chart-title' }, this.title), h('span', { class: `chart-value${values.length > 1 ? ' several' : ''}` },
      this.series.map(({ label }, index) => h('span', {}, label && h('small', {}, `${label} `), values[index]))));
    const lines = this.series.flatMap(({ name, kind }) => this.paths(name, kind));
    const x = samples.length && this.x(shown);
    update(this.drawing, lines, this.at !== null && s('line', { class: 'chart-cursor', x1: x, x2: x, y1: 0, y2: HEIGHT }));
    const span = samples.length ? `since ${hourAndMinute(samples[0].at)}` : 'no samples yet';
    update(this.foot, h('span', {}, this.at === null ? span : time(samples[shown].at)), h('span', {}, samples.length > 0 && `max ${this.text(this.most)}`));
    const words = `${this.title}: ${this.at === null ? 'now' : time(samples[shown].at)} ${values.join(' and ')}; at most ${this.text(this.most)} ${span}`;
    this.plot.setAttribute('aria-label', samples.length ? words : `${this.title}: no samples yet`);
  }

  x(index) {
    const span = this.times.at(-1) - this.times[0];
    return span ? ((this.times[index] - this.times[0]) / span) * WIDTH : WIDTH;
  }

  /** A filled area and a line for each run of known values; a time without samples is left empty. */
  paths(name, kind) {
    const y = (value) => HEIGHT - 2 - (value / Math.max(this.most, this.least)) * HEIGHT * ROOM;
    const runs = [[]];
    this.samples.forEach((sample, index) => {
      if (index && this.times[index] - this.times[index - 1] > this.step * 1500 && runs.at(-1).length) runs.push([]);
      if (known(sample[name])) runs.at(-1).push([round(this.x(index)), round(y(sample[name]))]);
      else if (runs.at(-1).length) runs.push([]);
    });
    return runs.filter((run) => run.length).flatMap((run) => {
      const line = `M${run.map((point) => point.join(' ')).join('L')}`;
      const area = `${line}L${run.at(-1)[0]} ${HEIGHT}L${run[0][0]} ${HEIGHT}Z`;
      return [s('path', { class: `area ${kind}`, d: area }), s('path', { class: `line ${kind}`, d: line })];
    });
  }
}

const known = (value) => value !== null && value !== undefined;
const round = (number) => Math.round(number * 10) / 10;

/** How an entry of a timeline is drawn: its shape, and what the legend calls it. */
const MARKS = {
  failed: { shape: '▮', word: 'failures' },
  breaker_opened: { shape: '▲', word: 'breaker opened' },
  breaker_closed: { shape: '▽', word: 'breaker closed' },
  relay_started: { shape: '◆', word: 'relay started' },
};
export const markOf = (kind) => MARKS[kind] || { shape: '■', word: String(kind).replaceAll('_', ' ') };

/** A small drawing of counts in equal parts of a time, which `words` describes. */
export function spark(counts, words) {
  const most = Math.max(...counts, 1);
  const bars = counts.map((number, index) => {
    const height = number ? Math.max(2, Math.round((number / most) * 20)) : 0;
    return height > 0 && s('rect', { x: index * 4, y: 20 - height, width: 3, height });
  });
  return s('svg', { class: 'spark', viewBox: `0 0 ${counts.length * 4} 21`, width: counts.length * 4, height: 21, role: 'img', 'aria-label': words },
    s('title', {}, words), s('line', { class: 'axis', x1: 0, x2: counts.length * 4 - 1, y1: 20.5, y2: 20.5 }), bars);
}

/** Entries {at, kind, text, count} along a line of time: failures as bars above it, whose heights are their counts, and what else happened below. */
export function timeline(entries) {
  const moments = entries.map((entry) => Date.parse(entry.at));
  const first = Math.min(...moments);
  const span = Math.max(Math.max(...moments) - first, 1);
  const most = Math.max(...entries.filter(({ kind }) => kind === 'failed').map((entry) => entry.count || 1), 1);
  const kinds = [...new Set(entries.map((entry) => entry.kind))];
  const marks = entries.map((entry, index) => {
    const x = round(((moments[index] - first) / span) * 99);
    const title = s('title', {}, `${time(entry.at)} ${entry.text}`);
    if (entry.kind === 'failed') {
      const height = round(Math.max(3, (TALLEST * (entry.count || 1)) / most));
      return s('rect', { class: 'mark failed', x: `${x}%`, y: TALLEST - height, width: '1%', height }, title);
    }
    return s('text', { class: `mark ${entry.kind}`, x: `${round(x + 0.5)}%`, y: TALLEST + 18, 'text-anchor': 'middle' }, markOf(entry.kind).shape, title);
  });
  const words = `${counted(entries.length, 'entry', 'entries')} from ${time(first)} to ${time(first + span)}`;
  return h('div', { class: 'timeline' },
    s('svg', { role: 'img', 'aria-label': `Timeline: ${words}`, width: '100%', height: TALLEST + (kinds.length > 1 ? 24 : 4) },
      s('line', { class: 'axis', x1: '0', x2: '100%', y1: TALLEST + 1, y2: TALLEST + 1 }), marks),
    h('div', { class: 'timeline-ends' }, [0, 0.5, 1].map((part) => h('span', {}, time(first + span * part)))),
    h('p', { class: 'legend' }, kinds.map((kind) => h('span', { class: kind }, h('span', { 'aria-hidden': 'true' }, `${markOf(kind).shape} `), markOf(kind).word, kind === 'failed' && most > 1 && `, at most ${count(most)} at a time`))));
}
