// The address of what is shown: every thread, step, tab, comparison and search has one. It is the fragment of the page's
// address, which a browser never sends anywhere. The token is not in it, so a link can be given away.

export const FILTERS = ["role", "tool", "failed", "label", "tag", "since", "until"]; // of the steps and turns of a thread
const FIELDS = ["page", "thread", "at", "view", "message", "with", "base", "list", "find", "search", "path", ...FILTERS];

// The place that an address names: an object with some of the fields.
export function readAddress(fragment = location.hash) {
  const given = new URLSearchParams(fragment.slice(1));
  return Object.fromEntries(FIELDS.map((name) => [name, given.get(name) || null]));
}

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
