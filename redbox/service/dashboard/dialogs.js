// Dialogs: a question with a form, the token, the list of shortcuts; and short messages.

import { h, update } from './dom.js';

let number = 0;

/** Opens a dialog and resolves with what it is closed with; undefined if it is dismissed. `fill(close)` returns its content. */
export function openDialog(title, fill, { wide = false, dismissable = true } = {}) {
  return new Promise((resolve) => {
    let result;
    const id = `dialog-${(number += 1)}`;
    const close = (value) => {
      result = value;
      dialog.close();
    };
    const dialog = h('dialog', { class: wide ? 'wide' : null, 'aria-labelledby': id },
      h('h2', { id }, title), fill(close),
      dismissable && h('button', { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => close() }, '✕')); // last: the first field gets the focus
    dialog.oncancel = (event) => {
      if (!dismissable) event.preventDefault();
    };
    dialog.onclick = (event) => {
      if (dismissable && event.target === dialog) close();
    };
    dialog.onclose = () => {
      dialog.remove();
      resolve(result);
    };
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A labelled field of a form. `input` is an element; `hint` explains it. */
export function field(label, input, hint) {
  const id = `field-${(number += 1)}`;
  input.id = id;
  if (hint) input.setAttribute('aria-describedby', `${id}-hint`);
  return h('div', { class: 'field' }, h('label', { for: id }, label), input, hint && h('small', { id: `${id}-hint` }, hint));
}

/** The reason that the log of the box records. */
export const reasonField = (input) => field('Reason', input, 'Recorded in the log of the box, with who did it.');

/**
 * Asks before something is changed. `run` does it: what it throws is shown, and what was typed is kept. Resolves with the result of `run`.
 * `why` false asks for no reason.
 */
export function ask({ title, text, fields = [], verb, danger = false, run, why = true }) {
  return openDialog(title, (close) => {
    const reason = h('input', { type: 'text', name: 'why', autocomplete: 'off', maxlength: 500 });
    const wrong = h('div', { class: 'wrong', role: 'alert' });
    const button = h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, verb);
    const submit = async (event) => {
      event.preventDefault();
      button.disabled = true;
      update(wrong);
      try {
        close(await run(reason.value.trim()));
      } catch (error) {
        update(wrong, h('p', {}, error.message));
        button.disabled = false;
      }
    };
    return h('form', { onsubmit: submit }, [text].flat().map((each) => h('p', {}, each)), fields, why && reasonField(reason), wrong,
      h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => close() }, 'Cancel'), button));
  });
}

/** Asks for a token until one is given. */
export function askToken(refused) {
  return openDialog('A token is needed', (close) => {
    const input = h('input', { type: 'password', autocomplete: 'off', required: true, spellcheck: 'false', autofocus: true });
    const submit = (event) => {
      event.preventDefault();
      if (input.value.trim()) close(input.value.trim());
    };
    return h('form', { onsubmit: submit },
      h('p', {}, 'This service asks for a token. One with the scope read shows everything; one with the scope operate can also change it.'),
      refused && h('p', { class: 'wrong', role: 'alert' }, 'The service does not know this token.'),
      field('Token', input, 'It is kept in this tab only, and forgotten when the tab is closed.'),
      h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary' }, 'Open')));
  }, { dismissable: false });
}

const messages = () => document.getElementById('messages');

/** Shows a short message, which screen readers speak. */
export function announce(text, { bad = false } = {}) {
  const message = h('p', { class: bad ? 'message message-bad' : 'message' }, text);
  messages().append(message);
  setTimeout(() => message.remove(), bad ? 12000 : 5000);
}
