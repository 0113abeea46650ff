// The address of what is shown: every thread, step, tab, comparison and search has one. It is the fragment of the page's
// address, which a browser never sends anywhere. The token is not in it, so a link can be given away.

export const FILTERS = ["role", "tool", "failed", "label", "tag", "since", "until"]; // of the steps and turns of a thread
const FIELDS = ["page", "thread", "at", "view", "message", "with", "base", "list", "find", "search", "path", ...FILTERS];

const KNOWN = {
  page: /^health$/, view: /^(run|conversation|state|changes|files|compare)$/, list: /^turns$/, message: /^\d{1,9}$/, failed: /^1$/,
};

// The place that an address names: an object with some of the fields. A value that does not exist is left out.
export function readAddress(fragment = location.hash) {
  const given = new URLSearchParams(fragment.slice(1));
  const known = (name) => (KNOWN[name]?.test(given.get(name)) ?? true ? given.get(name) || null : null);
  return Object.fromEntries(FIELDS.map((name) => [name, known(name)]));
}

// What of an address is not understood, in words; null if all of it is.
export function misunderstood(fragment = location.hash) {
  const odd = [...new URLSearchParams(fragment.slice(1))].filter(([name, value]) => value && (!FIELDS.includes(name) || KNOWN[name]?.test(value) === false));
  return odd.length ? odd.map(([name, value]) => `${name}=${value.slice(0, 60)}`).join(", ") : null;
}

// A place that is a page of its own, over whatever thread it names.
export const isPage = (place) => Boolean(place.page || place.search?.includes("text:"));

// An address that `backtrail ui` printed: it opens the page with a new token.
export const hasCode = () => new URLSearchParams(location.hash.slice(1)).has("code");

// The filter of the steps that a place has, as the parameters of a request; null if it has none.
export function filterOf(place) {
  const given = FILTERS.filter((name) => place[name]).map((name) => [name, name === "failed" ? true : place[name]]);
  return given.length ? Object.fromEntries(given) : null;
}

export const NO_FILTER = Object.fromEntries(FILTERS.map((name) => [name, null]));

export function fragmentOf(place) {
  const given = FIELDS.filter((name) => place[name] !== null && place[name] !== undefined && place[name] !== "");
  return given.length ? `#${new URLSearchParams(given.map((name) => [name, place[name]]))}` : "#";
}

export const linkTo = (place) => `${location.origin}${location.pathname}${fragmentOf(place)}`;

export function setAddress(place, { replace = false } = {}) {
  const fragment = fragmentOf(place);
  if (fragment === (location.hash || "#")) return;
  const address = location.pathname + (fragment === "#" ? "" : fragment);
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}
