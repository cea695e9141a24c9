// The page: header, routes, live feed, shortcuts.

import { h, s, update } from './dom.js';
import { askTokenWith, call, forgetToken, hasToken } from './api.js';
import { announce, askToken } from './dialogs.js';
import { change, mayOperate, state, subscribe } from './store.js';
import { follow } from './live.js';
import { go, href, parse } from './router.js';
import { listen, showHelp } from './keyboard.js';
import { openPalette } from './palette.js';
import { pauseOrResume } from './actions.js';
import { tray } from './jobs.js';
import { failure } from './parts.js';
import { count, counted } from './format.js';
import { overview } from './views/overview.js';
import { incidents } from './views/incidents.js';
import { incident } from './views/incident.js';
import { events } from './views/events.js';
import { event } from './views/event.js';
import { keys } from './views/keys.js';
import { relays } from './views/relays.js';
import { log } from './views/log.js';
import { settings } from './views/settings.js';
import { doctor } from './views/doctor.js';

/** Views by their name in the URL. Each is (root, route, signal): it fills root, and stops when the signal is aborted. */
const VIEWS = { overview, incidents, incident, events, event, keys, relays, log, settings, doctor };
const MENU = [['overview', 'Overview'], ['incidents', 'Incidents'], ['events', 'Events'], ['keys', 'Keys'], ['relays', 'Relays'], ['log', 'Log'], ['settings', 'Settings'], ['doctor', 'Doctor']];
const PARENTS = { incident: 'incidents', event: 'events' };
const THEMES = { system: ['◐', 'as the system'], light: ['☀', 'light'], dark: ['☾', 'dark'] };
const CONNECTIONS = { live: ['●', 'live'], connecting: ['◌', 'connecting'], lost: ['✕', 'not connected'], resting: ['◌', 'resting'] };
const SERVICE_EVERY = 60000; // ms between two readings of the list of boxes

let route = null;
let leave = null; // aborted when the view is left

function show() {
  const next = parse(location.hash);
  if (!next.box) {
    go(href(state.service.default_box), { replace: true });
    return;
  }
  if (leave) leave.abort();
  leave = new AbortController();
  const same = route && route.view === next.view && route.name === next.name && route.box === next.box;
  route = next;
  if (state.box !== route.box) follow(route.box);
  const main = document.getElementById('main');
  const view = VIEWS[route.view];
  const title = MENU.find(([name]) => name === (PARENTS[route.view] || route.view))?.[1] || 'Not found';
  document.title = `${route.name ? `${route.name} · ` : ''}${title} · ${route.box} · redbox`;
  drawHeader();
  const root = h('div', { class: `view view-${route.view}` });
  main.replaceChildren(root);
  if (view) view(root, route, leave.signal);
  else update(root, failure(new Error(`There is no view ${route.view}.`)));
  if (!same) {
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
    scrollTo(0, 0);
    if (document.activeElement === document.body) main.focus({ preventScroll: true });
  }
}

function drawHeader() {
  const { service, connection } = state;
  const { box } = route;
  const boxes = [...new Set([box, ...(service?.boxes || [])])].sort();
  const [dot, words] = CONNECTIONS[connection];
  const current = PARENTS[route.view] || route.view;
  const theme = localStorage.getItem('redbox-theme') || 'system';
  update(document.getElementById('header'),
    h('div', { class: 'bar' },
      h('a', { class: 'brand', href: href(box), 'aria-label': 'redbox: overview' }, h('img', { src: 'static/icon.svg', alt: '', width: 22, height: 22 }), h('span', {}, 'redbox')),
      h('select', { class: 'boxes', 'aria-label': 'Box', onchange: (event) => go(href(event.target.value, current)) },
        boxes.map((name) => h('option', { value: name, selected: name === box }, name))),
      h('button', { type: 'button', class: 'search', 'aria-label': 'Search: id, type, key, error', onclick: search }, 
        s('svg', { viewBox: '0 0 16 16', width: 14, height: 14, 'aria-hidden': 'true' }, s('path', { class: 'copy-icon', d: 'M10.5 10.5l4 4M12 7a5 5 0 1 1-10 0a5 5 0 0 1 10 0' })),
        h('span', { class: 'search-short' }, 'Search'), h('span', { class: 'search-words' }, 'Search: id, type, key, error…'), h('kbd', {}, '/')),
      h('span', { class: `connection connection-${connection}`, role: 'status', title: state.problem?.message }, h('span', { 'aria-hidden': 'true' }, dot), h('span', { class: 'words' }, ` ${words}`)),
      service && !mayOperate() && h('span', { class: 'badge' }, 'read-only'),
      hasToken() && h('button', { type: 'button', class: 'plain', onclick: signOut }, 'Forget token'),
      h('button', { type: 'button', class: 'plain icon', 'aria-label': `Colours: ${THEMES[theme][1]}`, title: `Colours: ${THEMES[theme][1]}`, onclick: nextTheme }, THEMES[theme][0]),
      h('button', { type: 'button', class: 'plain icon', 'aria-label': 'Help', title: 'Help', onclick: showHelp }, '?')),
    h('nav', { 'aria-label': 'Views' }, MENU.map(([name, label]) => h('a', { href: href(box, name), 'aria-current': name === current ? 'page' : null }, label, badge(name)))));
  document.querySelector('select.boxes').value = box; // the choice of a person outlives the attribute
}

/** The number of incidents beside the menu. */
function badge(name) {
  const { dead_groups: dead = 0, retrying_groups: retrying = 0 } = state.live;
  return name === 'incidents' && dead + retrying > 0 && h('span', { class: 'count', title: `${counted(dead, 'error')} of dead events, ${count(retrying)} of events that are retried` }, ` ${count(dead + retrying)}`);
}

function signOut() {
  forgetToken();
  location.reload();
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(localStorage.getItem('redbox-theme') || 'system') + 1) % names.length];
  localStorage.setItem('redbox-theme', next);
  applyTheme();
  drawHeader();
}

function applyTheme() {
  document.documentElement.dataset.theme = localStorage.getItem('redbox-theme') || 'system';
}

function search() {
  const { box } = route;
  const views = MENU.map(([name, label]) => ({ text: `Go to ${label}`, hint: `g ${name[0]}`, run: () => go(href(box, name)) }));
  const boxes = (state.service?.boxes || []).filter((name) => name !== box).map((name) => ({ text: `Switch to box ${name}`, run: () => go(href(name)) }));
  const changes = mayOperate() ? [{ text: state.live.stats?.paused ? 'Resume the box…' : 'Pause the box…', hint: 'p', run: () => pauseOrResume(box) }] : [];
  openPalette(box, [...views, ...changes, { text: 'Change the colours', run: nextTheme }, { text: 'Keyboard shortcuts', hint: '?', run: showHelp }, ...boxes]);
}

function drawTray() {
  const jobs = route ? tray(route.box, state.live.jobs || []) : [];
  const element = document.getElementById('tray');
  element.hidden = !jobs.length;
  update(element, jobs);
}

/** Reads the boxes and what this page may do; draws the view again if that has changed. */
async function readService() {
  const before = state.service;
  change({ service: await call('GET', 'v1') });
  if (before && before.read_only !== state.service.read_only) show();
}

const readServiceQuietly = () => readService().catch(() => {}); // the feed says what is wrong

async function start() {
  applyTheme();
  askTokenWith(askToken, () => state.service && readServiceQuietly());
  try {
    await readService();
  } catch (error) {
    update(document.getElementById('main'), failure(error, start));
    if (error.status === undefined) throw error;
    return;
  }
  subscribe(() => {
    if (!route) return;
    drawHeader();
    drawTray();
  });
  addEventListener('hashchange', show);
  setInterval(() => !document.hidden && readServiceQuietly(), SERVICE_EVERY);
  document.getElementById('skip').onclick = (event) => {
    event.preventDefault(); // the fragment of the address is the route
    document.getElementById('main').focus();
  };
  listen({
    search,
    view: (name) => go(href(route.box, name)),
    pause: () => (mayOperate() ? pauseOrResume(route.box) : announce('This page is read-only.')),
    back: () => history.back(),
  });
  show();
}

start();
