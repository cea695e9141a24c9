// Shortcuts of the keyboard, and their list.

import { h } from './dom.js';
import { announce, openDialog } from './dialogs.js';

const GOES = { o: 'overview', i: 'incidents', e: 'events', k: 'keys', r: 'relays', l: 'log', s: 'settings', d: 'doctor' };
const SEQUENCE = 1500; // ms between the two keys of `g o`

const HELP = [
  ['/ or Ctrl K', 'search: events, views and actions'],
  ['g o', 'overview'], ['g i', 'incidents'], ['g e', 'events'], ['g k', 'keys'], ['g r', 'relays'], ['g l', 'log'], ['g s', 'settings'], ['g d', 'doctor'],
  ['j or k', 'next or previous row'], ['Enter', 'open'], ['Esc', 'back, or close'], ['r', 'replay the event of the row, or all that the view shows: asks first'], ['p', 'pause or resume the box'], ['?', 'this list'],
];

/** Listens to the whole page. `act` has search(), view(name), pause() and back(). */
export function listen(act) {
  let first = 0; // when g was pressed
  document.addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]')) return;
    if (event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      act.search();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, textarea, select')) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    if (Date.now() - first < SEQUENCE && GOES[event.key]) {
      first = 0;
      act.view(GOES[event.key]);
      return;
    }
    first = event.key === 'g' ? Date.now() : 0;
    const simple = { '/': act.search, '?': showHelp, p: act.pause, Escape: act.back, j: () => step(1), k: () => step(-1), r: replay }[event.key];
    if (!simple) return;
    event.preventDefault();
    simple();
  });
}

/** Replays the event of the row that has the focus, or what the view offers. */
function replay() {
  const row = document.activeElement.closest('tr:has([data-row])');
  const inRow = row?.querySelector('[data-shortcut="r"]');
  if (row?.closest('.view-events') && !inRow) announce('This event is not DEAD or PUBLISHED, so it cannot be replayed.');
  else (inRow || document.querySelector('main :not(td) > [data-shortcut="r"]'))?.click();
}

/** Moves the focus to the next or previous row of the view. */
function step(by) {
  const rows = [...document.querySelectorAll('main [data-row]')];
  const at = rows.findIndex((row) => row === document.activeElement || row.closest('tr, li')?.contains(document.activeElement));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

export function showHelp() {
  openDialog('Help', () => h('div', { class: 'stack' }, h('p', {}, 'Search finds events by id, type, key, error or text, and opens every view.'), h('h3', {}, 'Keyboard'), h('dl', { class: 'keys-help' }, HELP.map(([keys, words]) => h('div', {}, h('dt', {}, keys.split(' ').map((key) => (key === 'or' ? ' or ' : h('kbd', {}, key)))), h('dd', {}, words))))));
}
