// Calls of the HTTP API. The address that `backtrail ui` prints has a code in its fragment, which is exchanged for the
// token, once. The token is kept for this tab only, handed to other tabs of this page that ask, and goes into a header of
// every call.

const ROOT = "/api/v1";

const KEPT = "backtrail-token";
const tabs = new BroadcastChannel("backtrail");

async function findToken() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname);
    const headers = { "content-type": "application/json" };
    const response = await fetch("/open", { method: "POST", body: JSON.stringify({ code }), headers });
    if (response.ok) return (await response.json()).token;
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

const token = await findToken();
if (token) sessionStorage.setItem(KEPT, token);
tabs.addEventListener("message", ({ data }) => { if (data.needsToken && token) tabs.postMessage({ token }); });

export class ApiError extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

async function call(path, options = {}) {
  const headers = { authorization: `Bearer ${token}`, ...options.headers };
  const response = await fetch(ROOT + path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error?.type ?? "Error", body?.error?.message ?? response.statusText);
}

function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export const get = async (path, parameters = {}, signal) => (await call(path + query(parameters), { signal })).json();
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
      if (error.status === 401) return onState("refused");
    }
    onState("lost");
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 8000);
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
