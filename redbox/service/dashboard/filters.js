// Filters as chips, with a field that completes names and values.

import { h, update } from './dom.js';
import { get, query } from './api.js';

/** The filters that a person types, with what they mean; the phase is chosen beside them. */
export const FILTERS = {
  type: 'event type, or a pattern such as order.*',
  key: 'ordering or unique key',
  error: 'text in the last error',
  text: 'text in the payload',
  group: 'id of an error group',
  since: 'not before: 1h, or 2026-01-31T12:00Z',
  until: 'not after: 5m, or 2026-01-31T12:00Z',
  created_since: 'put not before',
  created_until: 'put not after',
};
const SUGGESTED = ['type', 'key', 'error'];
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const PAUSE = 150; // ms after the last key before values are asked for

/** A field with the chips of a filter before it. `apply(filter)` is called with the next filter. */
export function filterField(box, filter, apply) {
  let options = [];
  let active = -1;
  let asked = null;
  let timer = null;
  const list = h('ul', { id: 'filter-list', role: 'listbox', 'aria-label': 'Completions', hidden: true });
  const input = h('input', {
    type: 'text', role: 'combobox', 'aria-label': 'Add a filter', 'aria-autocomplete': 'list', 'aria-controls': 'filter-list', 'aria-expanded': 'false',
    placeholder: Object.keys(filter).some((name) => FILTERS[name]) ? 'Add a filter' : 'Filter, such as type:order.*', autocomplete: 'off', spellcheck: 'false',
    oninput: () => find(), onfocus: () => find(), onkeydown: (event) => press(event), onblur: () => setTimeout(hide, 150),
  });

  const chips = Object.entries(filter).filter(([name]) => FILTERS[name]).map(([name, value]) => h('span', { class: 'chip' }, h('span', { class: 'chip-name' }, `${name}:`), ` ${value} `,
    h('button', { type: 'button', 'aria-label': `Remove the filter ${name}: ${value}`, onclick: () => without(name) }, '✕')));

  function without(name) {
    const { [name]: _, ...others } = filter;
    apply(others);
  }

  function hide() {
    list.hidden = true;
    input.setAttribute('aria-expanded', 'false');
  }

  function take(text) {
    const [, name, value] = /^([a-z_]+):\s*(.+)$/s.exec(text) || [];
    if (name && FILTERS[name]) apply({ ...filter, [name]: value.trim() });
    else if (ID.test(text)) location.hash = `#/${encodeURIComponent(box)}/event/${encodeURIComponent(text)}`;
    else if (text) apply({ ...filter, text });
  }

  function choose(option) {
    if (option.field) {
      input.value = `${option.field}:`;
      input.focus();
      find();
    } else take(option.value);
  }

  function press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      event.preventDefault();
      active = (active + step + options.length) % options.length;
      draw();
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (options[active]) choose(options[active]);
      else take(input.value.trim());
    } else if (event.key === 'Escape' && !list.hidden) {
      event.stopPropagation();
      hide();
    } else if (event.key === 'Backspace' && !input.value && chips.length) without(Object.keys(filter).filter((name) => FILTERS[name]).at(-1));
  }

  function draw() {
    update(list, options.map((option, index) => h('li', {
      id: `filter-${index}`, role: 'option', 'aria-selected': index === active ? 'true' : 'false', onpointerdown: (event) => event.preventDefault(), onclick: () => choose(option),
    }, h('strong', {}, option.text), option.hint && h('span', { class: 'muted' }, ` ${option.hint}`))));
    list.hidden = !options.length;
    input.setAttribute('aria-expanded', String(options.length > 0));
    if (active >= 0) input.setAttribute('aria-activedescendant', `filter-${active}`);
    else input.removeAttribute('aria-activedescendant');
  }

  async function find() {
    clearTimeout(timer);
    if (asked) asked.abort();
    active = -1;
    const text = input.value;
    const [, name, prefix] = /^([a-z_]+):\s*(.*)$/s.exec(text) || [];
    if (!FILTERS[name]) {
      options = Object.entries(FILTERS).filter(([each]) => each.startsWith(text) && !filter[each]).map(([each, hint]) => ({ field: each, text: `${each}:`, hint }));
      draw();
      return;
    }
    options = [];
    draw();
    if (!SUGGESTED.includes(name)) return;
    timer = setTimeout(async () => {
      asked = new AbortController();
      const { values } = await get(box, `suggest${query({ field: name, prefix })}`, { signal: asked.signal }).catch(() => ({ values: [] }));
      if (input.value !== text || document.activeElement !== input) return;
      options = values.slice(0, 10).map((value) => ({ value: `${name}:${value}`, text: value }));
      draw();
    }, PAUSE);
  }

  return h('div', { class: 'filters' }, chips, h('div', { class: 'completion' }, input, list));
}
