// The address of what is shown: every thread, step, tab, comparison and search has one. It is the fragment of the page's
// address, which a browser never sends anywhere. The token is not in it, so a link can be given away.

const FIELDS = ["page", "thread", "at", "view", "message", "with", "base", "list", "find", "search", "path"];

// The place that an address names: an object with some of the fields.
export function readAddress(fragment = location.hash) {
  const given = new URLSearchParams(fragment.slice(1));
  return Object.fromEntries(FIELDS.map((name) => [name, given.get(name) || null]));
}

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
