// Written by `backtrail agents install`; `backtrail agents uninstall opencode` removes it.
// Tells backtrail when a turn begins and ends, so that conversation and files can be taken back. It changes nothing, and
// whatever goes wrong in it, opencode goes on.
import { spawn } from "node:child_process"

const COMMAND = "the hook command"
const SECONDS = 30

// Runs the hook with an event, and gives what it prints: an answer to a prompt, or nothing.
const run = (event) =>
  new Promise((resolve) => {
    let told = ""
    const child = spawn("/bin/sh", ["-c", `exec ${COMMAND}`], { stdio: ["pipe", "pipe", "ignore"], detached: true })
    const timer = setTimeout(() => resolve(""), SECONDS * 1000)
    const end = (text) => {
      clearTimeout(timer)
      resolve(text)
    }
    child.on("error", () => end(""))
    child.on("close", () => end(told))
    child.stdout.on("data", (data) => (told += data))
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(event))
  })

export const Backtrail = async ({ client, directory }) => {
  const kinds = new Map()

  // True for a session that a person talks to; false for one that an agent has started for a part of its work.
  const isMain = async (id) => {
    if (!kinds.has(id)) {
      const found = await client.session.get({ path: { id } })
      if (!found?.data) return true
      kinds.set(id, !found.data.parentID)
    }
    return kinds.get(id)
  }

  const tell = async (name, id, more = {}) => {
    try {
      if (!id || !(await isMain(id))) return ""
      const found = await client.session.messages({ path: { id } })
      const messages = Array.isArray(found?.data) ? found.data : undefined
      return await run({ hook_event_name: name, session_id: id, cwd: directory, messages, ...more })
    } catch {
      return ""
    }
  }

  // Shows a text in the conversation; the model never sees it.
  const show = async (id, text) => {
    try {
      await client.session.prompt({ path: { id }, body: { noReply: true, parts: [{ type: "text", text, ignored: true }] } })
    } catch {
      return
    }
  }

  return {
    "chat.message": async (input, output) => {
      const id = input?.sessionID
      const text = (output?.parts ?? []).filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
      if (!text.length) return
      const prompt = text.map((part) => part.text).join("\n")
      const answer = await tell("chat.message", id, { prompt, message_id: output?.message?.id })
      if (answer) {
        await show(id, answer)
        throw new Error(answer) // opencode has no other way to leave the model out
      }
    },
    event: async ({ event }) => {
      const id = event?.properties?.sessionID
      if (event?.type === "session.created" || event?.type === "session.idle") await tell(event.type, id)
    },
    "experimental.session.compacting": async (input) => {
      await tell("session.compacting", input?.sessionID)
    },
  }
}
