"""Programs with the Claude Agent SDK give the same results on backtrail's store as on the SDK's in-memory one."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest
from claude_agent_sdk._internal.session_resume import materialize_resume_session
from claude_agent_sdk._internal.transcript_mirror_batcher import TranscriptMirrorBatcher

from backtrail.adapters.claude import BacktrailSessionStore
from fix_differential import assert_same_results, outcome

PROGRAMS: list[Any] = []


def program(function: Any) -> Any:
    PROGRAMS.append(function)
    return function


class Kit:
    """Opens the store again at each use, as another process does, and names sessions of one directory."""

    directory = "/home/ann/project"

    def __init__(self, open_store: Callable[[], Any]) -> None:
        self.open_store = open_store
        self.project = sdk.project_key_for_directory(self.directory)

    @property
    def store(self) -> Any:
        return self.open_store()

    def key(self, id: str, subpath: str | None = None) -> Any:
        return {"project_key": self.project, "session_id": id, **({"subpath": subpath} if subpath else {})}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_the_same_results_as_on_the_sdks_own_store(
    program: Any,
    open_store: Any,
    tmp_path: Path,
    run_async: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))

    @asynccontextmanager
    async def stock() -> AsyncIterator[Kit]:
        store = sdk.InMemorySessionStore()
        yield Kit(lambda: store)

    async def both() -> None:
        async with open_store() as store:
            await assert_same_results(program, stock, Kit(lambda: BacktrailSessionStore(store)))

    run_async(both())


A, B, C = (str(uuid.UUID(int=number, version=4)) for number in (1, 2, 3))


def entry(number: int, text: Any = None, **fields: Any) -> Any:
    role = "assistant" if number % 2 else "user"
    content = f"message {number}" if text is None else text
    return {
        "type": role,
        "uuid": str(uuid.UUID(int=1000 + number, version=4)),
        "parentUuid": str(uuid.UUID(int=999 + number, version=4)) if number else None,
        "sessionId": A,
        "timestamp": f"2026-01-02T03:04:{number:02}Z",
        "message": {"role": role, "content": content},
        **fields,
    }


async def transcripts(materialized: Any) -> Any:
    """The files that a resumed session would start with."""
    if materialized is None or isinstance(materialized, Exception):
        return materialized
    files = sorted(Path(materialized.config_dir).rglob("*.jsonl"))
    found = [(path.name, [json.loads(line) for line in path.read_text().splitlines()]) for path in files]
    await materialized.cleanup()
    return materialized.resume_session_id, found


def options(kit: Kit, **more: Any) -> Any:
    return sdk.ClaudeAgentOptions(cwd=kit.directory, session_store=kit.store, **more)


@program
async def streaming_into_the_mirror(kit: Kit) -> Any:
    errors: list[Any] = []

    async def failed(key: Any, message: str) -> None:
        errors.append((key, message))

    batcher = TranscriptMirrorBatcher(store=kit.store, projects_dir="/p", on_error=failed, max_pending_entries=3)
    for number in range(10):
        batcher.enqueue(f"/p/{kit.project}/{A}.jsonl", [entry(number)])
        batcher.enqueue(f"/p/{kit.project}/{A}/subagents/agent-x.jsonl", [entry(number, isSidechain=True)])
    await batcher.close()
    loaded = [await kit.store.load(kit.key(A)), await kit.store.load(kit.key(A, "subagents/agent-x"))]
    return errors, loaded, await kit.store.list_subkeys(kit.key(A))


@program
async def a_crash_and_a_resume(kit: Kit) -> Any:
    for number in range(4):
        await kit.store.append(kit.key(A), [entry(number)])
    await kit.store.append(kit.key(A, "subagents/agent-x"), [entry(1, isSidechain=True)])
    resumed = await transcripts(await materialize_resume_session(options(kit, resume=A)))
    await kit.store.append(kit.key(B), [entry(0, "newer")])
    continued = await transcripts(await materialize_resume_session(options(kit, continue_conversation=True)))
    await kit.store.append(kit.key(A), [entry(5, "newest")])
    again = await transcripts(await materialize_resume_session(options(kit, continue_conversation=True)))
    missing = await transcripts(await outcome(materialize_resume_session(options(kit, resume=C))))
    return resumed, continued, again, missing


@program
async def values_of_all_kinds(kit: Kit) -> Any:
    odd = ["", "naïve 🙂", "NUL \0", "\x1f", 0, -1, 2**63, 2**70, 1.5, -0.0, True, None, [], {}, {"": {"x": [1]}}]
    await kit.store.append(kit.key(A), [{"type": "x-unknown", "value": value} for value in odd])
    await kit.store.append(kit.key(A), [{"type": "summary"}, {"no type": 1, "uuid": "not a uuid"}])
    await kit.store.append(kit.key("ü/%", "a b/c\u00e9"), [entry(0)])
    await kit.store.append(kit.key(B), [])
    loaded = [await kit.store.load(key) for key in (kit.key(A), kit.key(B), kit.key(C), kit.key("ü/%"))]
    return loaded, await kit.store.load(kit.key("ü/%", "a b/c\u00e9")), await kit.store.list_subkeys(kit.key("ü/%"))


@program
async def text_that_was_cut_in_an_emoji(kit: Kit) -> Any:
    cut = [
        entry(0, "stream \ud83d"),
        entry(1, [{"type": "text", "text": "\ude42 rest"}]),
        entry(2, customTitle="\ud83d"),
    ]
    await kit.store.append(kit.key(A), cut)
    messages = await sdk.get_session_messages_from_store(kit.store, A, kit.directory)
    return await kit.store.load(kit.key(A)), messages, await sdk.list_sessions_from_store(kit.store, kit.directory)


@program
async def titles_tags_and_listings(kit: Kit) -> Any:
    for id, count in ((A, 3), (B, 5), (C, 1)):
        await kit.store.append(kit.key(id), [entry(number) for number in range(count)])
    await kit.store.append(kit.key(str(uuid.UUID(int=9, version=4))), [entry(0, isSidechain=True)])
    await sdk.rename_session_via_store(kit.store, A, "A title", kit.directory)
    await sdk.tag_session_via_store(kit.store, A, "tag", kit.directory)
    await sdk.tag_session_via_store(kit.store, B, "other", kit.directory)
    await sdk.tag_session_via_store(kit.store, B, None, kit.directory)
    pages = [(None, 0), (1, 0), (2, 1), (9, 2), (0, 0), (2, 9)]
    listed = [await sdk.list_sessions_from_store(kit.store, kit.directory, limit, offset) for limit, offset in pages]
    infos = [await sdk.get_session_info_from_store(kit.store, id, kit.directory) for id in (A, B, C)]
    ids = [one["session_id"] for one in await kit.store.list_sessions(kit.project)]
    return listed, infos, sorted(ids), await sdk.list_sessions_from_store(kit.store, "/elsewhere")


@program
async def limits(kit: Kit) -> Any:
    await kit.store.append(kit.key(A), [entry(number) for number in range(7)])
    pages = [(None, 0), (2, 0), (2, 3), (9, 5), (0, 0), (None, 99)]
    return [await sdk.get_session_messages_from_store(kit.store, A, kit.directory, *page) for page in pages]


@program
async def rewinds_by_fork(kit: Kit) -> Any:
    await kit.store.append(kit.key(A), [entry(number) for number in range(6)])
    forks = [
        await sdk.fork_session_via_store(kit.store, A, kit.directory),
        await sdk.fork_session_via_store(kit.store, A, kit.directory, entry(3)["uuid"], "What if?"),
    ]
    unknown = await outcome(sdk.fork_session_via_store(kit.store, A, kit.directory, str(uuid.UUID(int=77, version=4))))
    await kit.store.append(kit.key(forks[1].session_id), [entry(9, "another way")])
    messages = [
        await sdk.get_session_messages_from_store(kit.store, id, kit.directory)
        for id in (A, forks[0].session_id, forks[1].session_id)
    ]
    return forks, unknown, messages


@program
async def sub_agents(kit: Kit) -> Any:
    await kit.store.append(kit.key(A), [entry(0)])
    for name in ("x", "y"):
        agent = [entry(number, agentId=name, isSidechain=True) for number in range(3)]
        await kit.store.append(kit.key(A, f"subagents/agent-{name}"), agent)
    listed = await sdk.list_subagents_from_store(kit.store, A, kit.directory)
    messages = [
        await sdk.get_subagent_messages_from_store(kit.store, A, name, kit.directory) for name in ("x", "y", "z")
    ]
    await kit.store.delete(kit.key(A, "subagents/agent-x"))
    left = sorted(await kit.store.list_subkeys(kit.key(A)))
    await sdk.delete_session_via_store(kit.store, A, kit.directory)
    await sdk.delete_session_via_store(kit.store, A, kit.directory)
    gone = [await kit.store.load(kit.key(A)), await kit.store.list_subkeys(kit.key(A))]
    return sorted(listed), messages, left, gone, await kit.store.list_sessions(kit.project)


@program
async def compaction(kit: Kit) -> Any:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": str(uuid.UUID(int=50, version=4))}
    summary = entry(6, "the story so far", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    await kit.store.append(kit.key(A), [entry(number) for number in range(6)])
    await kit.store.append(kit.key(A), [{**boundary, "sessionId": A, "parentUuid": None}, summary, entry(7)])
    messages = await sdk.get_session_messages_from_store(kit.store, A, kit.directory)
    return messages, await transcripts(await materialize_resume_session(options(kit, resume=A)))


@program
async def concurrent_writers(kit: Kit) -> Any:
    await asyncio.gather(*(kit.store.append(kit.key(A), [entry(n), entry(n + 30)]) for n in range(20)))
    await asyncio.gather(*(kit.store.append(kit.key(B, f"sub/{n}"), [entry(n)]) for n in range(5)))
    loaded = [one["message"]["content"] for one in await kit.store.load(kit.key(A))]
    pairs = all(int(loaded[at].split()[1]) + 30 == int(loaded[at + 1].split()[1]) for at in range(0, 40, 2))
    return sorted(loaded), pairs, sorted(await kit.store.list_subkeys(kit.key(B)))


@program
async def an_import_from_files(kit: Kit) -> Any:
    directory = Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", kit.project)
    directory.mkdir(parents=True, exist_ok=True)
    Path(directory, f"{A}.jsonl").write_text("".join(json.dumps(entry(number)) + "\n" for number in range(7)))
    await sdk.import_session_to_store(A, kit.store, directory=kit.directory, batch_size=3)
    return await kit.store.load(kit.key(A)), await sdk.get_session_info_from_store(kit.store, A, kit.directory)
