// Views by URL: `#/orders/events?state=DEAD`, `#/orders/event/0198f2c4`. Fragments never reach the server or its logs.

/** The route of a fragment: {box, view, name, query}. */
export function parse(fragment) {
  const [path, search = ''] = fragment.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [box = '', view = '', ...rest] = path.split('/').map(decode);
  return { box, view: view || 'overview', name: rest.length ? rest.join('/') : null, query: new URLSearchParams(search) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The fragment of a view; values of `query` that are empty are left out. */
export function href(box, view = 'overview', name = null, query = {}) {
  const parts = [box, ...(view === 'overview' ? [] : [view]), ...(name === null ? [] : [name])];
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return `#/${parts.map(encodeURIComponent).join('/')}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}

export function go(fragment, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, '', fragment);
    dispatchEvent(new HashChangeEvent('hashchange'));
  } else location.hash = fragment;
}
