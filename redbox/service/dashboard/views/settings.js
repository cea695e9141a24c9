// Settings: pause, limits and retention of the box, each with what it means.

import { h, update } from '../dom.js';
import { get, patch } from '../api.js';
import { announce, ask } from '../dialogs.js';
import { href } from '../router.js';
import { mayOperate, watch } from '../store.js';
import { failure, load, loading, moment, prose, section } from '../parts.js';
import { pause, resume } from '../actions.js';
import { duration } from '../format.js';

export function settings(root, { box }, signal) {
  const pauses = h('div', {});
  const form = h('div', {});
  root.append(h('h1', {}, 'Settings'), pauses, form);
  watch(signal, ({ live, connection, problem }) => {
    const waiting = connection === 'lost' && problem ? failure(problem, null) : loading();
    update(pauses, section('Delivery', null, live.stats ? delivery(box, live.stats) : waiting));
  });
  const again = load(form, signal, () => get(box, 'settings', { signal }), (found) => settingsForm(box, found, () => again()));
}

function delivery(box, stats) {
  const { paused, pause: about, ramp_ends: ramp } = stats;
  const words = [];
  if (paused) {
    words.push(h('strong', { class: 'bad' }, '✕ Paused'), about?.who ? ` by ${about.who}` : '', about?.since ? [' ', moment(about.since)] : '', about?.why ? `: ${about.why}` : '', '. ',
      about?.until ? ['It ends ', moment(about.until), '.'] : 'It lasts until someone resumes the box.');
  } else words.push(h('strong', { class: 'good' }, '✓ Not paused'), '. Relays claim events as they become due.', ramp ? ` The rate is limited for ${duration(ramp)} more.` : '', limitsInWords(stats));
  const button = paused ? h('button', { type: 'button', class: 'primary', onclick: () => resume(box) }, 'Resume…') : h('button', { type: 'button', onclick: () => pause(box) }, 'Pause…');
  return h('div', { class: 'setting' }, h('p', {}, words), mayOperate() && button);
}

/** The limits of all relays together, and whether they hold back due events. */
function limitsInWords({ settings: { max_rate: most, max_in_flight: places }, limits_reached: reached }) {
  const words = [most && ` at most ${most}${reached.includes('max_rate') ? ' (reached)' : ''}`, places && ` at most ${places} at once${reached.includes('max_in_flight') ? ' (reached)' : ''}`].filter(Boolean);
  return words.length ? ` All relays together claim${words.join(', and')}.` : '';
}

function settingsForm(box, found, again) {
  const inputs = new Map();
  const rows = Object.entries(found).map(([name, setting]) => {
    const about = { id: `setting-${name}`, 'aria-describedby': `setting-${name}-meaning`, disabled: !mayOperate() };
    const input = setting.choices.length
      ? h('select', about, setting.choices.map((value) => h('option', { value, selected: value === setting.text }, value)))
      : h('input', { ...about, type: 'text', value: setting.text, autocomplete: 'off', spellcheck: 'false' });
    inputs.set(name, input);
    return h('div', { class: 'setting' },
      h('div', {}, h('label', { for: about.id }, name), !setting.is_default && h('span', { class: 'badge' }, 'changed'), h('p', { class: 'muted', id: `${about.id}-meaning` }, prose(setting.meaning), '. Default: ', h('code', {}, setting.default), '.')), input);
  });
  const save = async (event) => {
    event.preventDefault();
    const changed = [...inputs].filter(([name, input]) => input.value.trim() !== found[name].text);
    if (!changed.length) {
      announce('Nothing was changed.');
      return;
    }
    const reset = changed.filter(([name, input]) => ['', 'default'].includes(input.value.trim()) || input.value.trim() === found[name].default).map(([name]) => name);
    const changes = Object.fromEntries(changed.filter(([name]) => !reset.includes(name)).map(([name, input]) => [name, input.value.trim()]));
    const done = await ask({
      title: 'Change settings',
      text: [h('ul', {}, changed.map(([name, input]) => h('li', {}, h('code', {}, name), ` from ${found[name].text} to ${reset.includes(name) ? `${found[name].default} (the default)` : input.value.trim()}`))), 'They hold for all users of the box at once.'],
      verb: 'Change',
      run: async (why) => {
        await patch(box, 'settings', { changes, reset, why });
        return true;
      },
    });
    if (done) {
      announce('Changed the settings.');
      again();
    }
  };
  return section('Limits and retention', h('a', { href: href(box, 'log', null, { action: 'configure' }) }, 'Who changed what'),
    h('form', { onsubmit: save }, rows, mayOperate() && h('div', { class: 'buttons save' }, h('button', { type: 'submit', class: 'primary' }, 'Save…'))));
}
