// Calls of the HTTP API. The address that `backtrail ui` prints has a code in its fragment, which is exchanged for the
// token, once. The token is kept for this tab only, handed to other tabs of this page that ask, and goes into a header of
// every call.

const ROOT = "api/v1"; // below the page, wherever an application has mounted it

const KEPT = "backtrail-token";
const tabs = new BroadcastChannel("backtrail");

async function findToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  const code = given.get("code");
  if (code) {
    given.delete("code");
    history.replaceState(null, "", location.pathname + (given.size ? `#${given}` : ""));
    const headers = { "content-type": "application/json" };
    const response = await fetch("open", { method: "POST", body: JSON.stringify({ code }), headers });
    if (response.ok) {
      const { token: found } = await response.json();
      tabs.postMessage({ token: found }); // for tabs whose server is gone
      return found;
    }
  }
  return sessionStorage.getItem(KEPT) ?? (await askOtherTabs());
}

// Only pages of this origin hear the question. Without an answer the page says what to do.
function askOtherTabs() {
  return new Promise((answer) => {
    const give = ({ data }) => { if (data.token) answer(data.token); };
    tabs.addEventListener("message", give);
    tabs.postMessage({ needsToken: true });
    setTimeout(() => { tabs.removeEventListener("message", give); answer(""); }, 500);
  });
}

let token = await findToken();
keep(token);
tabs.addEventListener("message", ({ data }) => { if (data.needsToken && token) tabs.postMessage({ token }); });

function keep(found) {
  token = found;
  if (found) sessionStorage.setItem(KEPT, found);
}

// A token that the server does not take is that of a server which was started before: another tab may have a newer one.
async function renewed(refused) {
  if (token !== refused) return true;
  sessionStorage.removeItem(KEPT);
  const found = await askOtherTabs();
  if (!found || found === refused) return false;
  keep(found);
  return true;
}

// Waits for another tab to get a token that this one does not have.
function newerToken() {
  return new Promise((done) => {
    const take = ({ data }) => {
      if (!data.token || data.token === token) return;
      tabs.removeEventListener("message", take);
      keep(data.token);
      done();
    };
    tabs.addEventListener("message", take);
  });
}

export class ApiError extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

async function call(path, options = {}) {
  const used = token;
  const headers = { authorization: `Bearer ${used}`, ...options.headers };
  const response = await fetch(ROOT + path, { ...options, headers, cache: "no-store" }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "Unreachable", "The server does not answer: it may have been stopped.");
  });
  if (response.ok) return response;
  if (response.status === 401 && !options.again && (await renewed(used))) return call(path, { ...options, again: true });
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error?.type ?? "Error", body?.error?.message ?? response.statusText);
}

function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export const get = async (path, parameters = {}, signal) => (await call(path + query(parameters), { signal })).json();
export const getBlob = async (path, parameters = {}, signal) => (await call(path + query(parameters), { signal })).blob();
export const getText = async (path, parameters = {}) => (await call(path + query(parameters))).text();
export const post = async (path, body) => {
  const headers = { "content-type": "application/json" };
  return (await call(path, { method: "POST", body: JSON.stringify(body), headers })).json();
};

// Server-sent events by fetch, because EventSource cannot send a header. Reconnects when the connection is lost.
export async function listen(onEvent, onState) {
  let wait = 500;
  for (;;) {
    try {
      const response = await call("/events");
      onState("live");
      wait = 500;
      for await (const [name, data] of events(response.body)) onEvent(name, data);
    } catch (error) {
      if (error.status === 401) {
        onState("refused");
        await newerToken();
        continue;
      }
    }
    onState("lost");
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 8000);
  }
}

// The lines of a response, each one JSON, as they come.
export async function* getLines(path, parameters, signal) {
  const response = await call(path + query(parameters), { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (buffer + value).split("\n");
    buffer = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const parts = buffer.split("\n\n");
    buffer = parts.pop();
    for (const part of parts) {
      const name = /^event: (.*)$/m.exec(part)?.[1];
      const data = /^data: (.*)$/m.exec(part)?.[1];
      if (name && data) yield [name, JSON.parse(data)];
    }
  }
}
