// Calls of the HTTP API. The token comes in the fragment of the address (which browsers never send), is kept for this
// tab only, and goes into a header of every call.

const ROOT = "/api/v1";

function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) {
    sessionStorage.setItem("backtrail-token", found);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("backtrail-token") ?? "";
}

const token = takeToken();

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
