// The command palette: one field that finds events, views and actions.

import { h, update } from './dom.js';
import { get, query, segment } from './api.js';
import { openDialog } from './dialogs.js';
import { go, href } from './router.js';

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}|^[0-9a-f-]{20,}$/i;
const PAUSE = 150; // ms without a key after which an event is looked for
const FIELDS = { type: 'Events of type', key: 'Events with key', error: 'Errors with' };

/** Opens the palette. `commands`: [{text, hint?, run}]. */
export function openPalette(box, commands) {
  return openDialog('Search', (close) => {
    let options = [];
    let active = 0;
    let asked = null;
    let moved = false; // whether a person chose another option than the first
    let lookFor = null; // asks whether the box holds an event whose id was typed, and offers it
    let timer = null;
    const list = h('ul', { id: 'palette-list', role: 'listbox', 'aria-label': 'Results' });
    const input = h('input', {
      type: 'text', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette-list', 'aria-label': 'Search for an id, type, key, error, view or action',
      placeholder: 'Event id, type, key, error, view or action', autocomplete: 'off', spellcheck: 'false', autofocus: true,
      oninput: () => find(), onkeydown: (event) => move(event),
    });

    const choose = (option) => {
      close();
      option.run();
    };
    const draw = () => {
      active = Math.max(0, Math.min(active, options.length - 1));
      update(list, options.map((option, index) => h('li', {
        id: `palette-${index}`, role: 'option', 'aria-selected': index === active ? 'true' : 'false', onclick: () => choose(option),
      }, h('span', {}, option.text), option.hint && h('kbd', {}, option.hint))));
      if (options.length) input.setAttribute('aria-activedescendant', `palette-${active}`);
      list.children[active]?.scrollIntoView({ block: 'nearest' });
    };
    const move = (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        moved = true;
        active = (active + step + options.length) % Math.max(options.length, 1);
        draw();
      } else if (event.key === 'Enter') {
        event.preventDefault();
        enter();
      }
    };
    /** An event whose id was typed goes before everything else. */
    const enter = async () => {
      const { value } = input;
      if (!moved) await lookFor?.();
      if (input.isConnected && input.value === value && options[active]) choose(options[active]);
    };
    const offer = (text, open, signal) => {
      let looked = null;
      lookFor = () => (looked ||= get(box, `events/${segment(text)}`, { signal }).then(() => {
        if (signal.aborted) return;
        options = [open, ...options];
        active = moved ? active + 1 : 0;
        draw();
      }, () => {})); // there is none, or no answer: then it is searched for as text
      timer = setTimeout(lookFor, PAUSE);
    };
    const find = async () => {
      const text = input.value.trim();
      const matching = commands.filter((each) => each.text.toLowerCase().includes(text.toLowerCase()));
      const open = { text: `Open event ${text}`, run: () => go(href(box, 'event', text)) };
      const search = { text: `Events with “${text}” in the payload`, run: () => go(href(box, 'events', null, { text })) };
      options = text ? [...(ID.test(text) ? [open] : []), ...matching, search] : matching; // `why` explains a removed event by its id
      active = 0;
      moved = false;
      lookFor = null;
      clearTimeout(timer);
      draw();
      if (asked) asked.abort();
      asked = new AbortController();
      const { signal } = asked;
      if (text && !ID.test(text)) offer(text, open, signal);
      if (text.length < 2) return;
      const found = await Promise.all(Object.keys(FIELDS).map(async (name) => {
        const { values } = await get(box, `suggest${query({ field: name, prefix: text })}`, { signal }).catch(() => ({ values: [] }));
        return values.slice(0, 4).map((value) => ({ text: `${FIELDS[name]} ${value}`, run: () => go(href(box, 'events', null, { [name]: value })) }));
      }));
      if (signal.aborted) return;
      options = [...options.slice(0, -1), ...found.flat(), ...options.slice(-1)];
      draw();
    };
    find();
    return h('div', { class: 'palette' }, input, list);
  });
}
