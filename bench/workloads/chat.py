"""W4, a chat: 5,000 single messages are added, and the last 50 are read after each."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from bench.contenders.backtrail import BacktrailChatSession
from bench.contenders.openai_agents import OpenAIAgentsSession
from bench.measure import Outcome, Target, directory_bytes, quantile
from bench.run_context import RunContext, Scratch
from bench.synthetic_messages import Message, make_messages

LAST = 50
CHUNK = 50


class Chat(Protocol):
    name: str

    def time_turns(self, messages: Iterable[Message], last: int) -> list[float]: ...

    def close(self) -> None: ...


class JsonLinesChat:
    """A line per message, fsynced; the end of the file is read back."""

    name = "JSONL append, fsync, read the end"

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "chat.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def time_turns(self, messages: Iterable[Message], last: int) -> list[float]:
        taken = []
        for message in messages:
            start = perf_counter()
            os.write(self._file, json.dumps(message, ensure_ascii=False).encode() + b"\n")
            os.fsync(self._file)
            found = self._tail(last)
            taken.append(perf_counter() - start)
            assert found[-1] == message
        return taken

    def _tail(self, last: int) -> list[Message]:
        """The last lines: a window at the end of the file is doubled until it holds enough of them."""
        size = os.fstat(self._file).st_size
        window = 128 * 1024
        while True:
            data = os.pread(self._file, window, max(0, size - window))
            lines = data.splitlines()
            if len(lines) > last or window >= size:
                return [json.loads(line) for line in lines[-last:]]
            window *= 2

    def close(self) -> None:
        os.close(self._file)


def open_chats(scratch: Scratch, durability: str) -> tuple[list[Chat], list[Path]]:
    directories = [scratch.new_directory(), scratch.new_directory()]
    chats: list[Chat] = [
        BacktrailChatSession(str(directories[0] / "backtrail.db"), durability=durability, compression=None),
        OpenAIAgentsSession(directories[1], durability),
    ]
    if durability == "full":
        directories.append(scratch.new_directory())
        chats.append(JsonLinesChat(directories[-1]))
    return chats, directories


def run(context: RunContext) -> Outcome:
    count, rounds = context.scaled(5000), max(1, context.rounds - 1)
    messages = list(make_messages(count))
    rows, targets, raw = [], list[Target](), dict[str, Any]()
    with context.progress("W4: a chat", 2 * rounds * count) as bar:
        for durability in ("full", "normal"):
            taken: dict[str, list[list[float]]] = {}
            sizes: dict[str, int] = {}
            for number in range(rounds):
                with context.scratch() as scratch:
                    chats, directories = open_chats(scratch, durability)
                    times: dict[str, list[float]] = {chat.name: [] for chat in chats}
                    for turn, first in enumerate(range(0, count, CHUNK)):
                        shift = (turn + number) % len(chats)
                        for chat in [*chats[shift:], *chats[:shift]]:
                            times[chat.name] += chat.time_turns(messages[first : first + CHUNK], LAST)
                        bar.advance(CHUNK)
                    for chat, directory in zip(chats, directories, strict=True):
                        chat.close()
                        sizes[chat.name] = directory_bytes(directory)
                        taken.setdefault(chat.name, []).append(times[chat.name])
            rates = {name: statistics.median(count / sum(times) for times in every) for name, every in taken.items()}
            for name, every in taken.items():
                steady = [statistics.median(turn) for turn in zip(*every, strict=True)]
                first, last = statistics.median(steady[: count // 10]), statistics.median(steady[-count // 10 :])
                p99 = statistics.median(quantile(times, 0.99) for times in every)
                figures = [f"{ms * 1e3:.3f}" for ms in (first, last, p99)]
                rows.append([name, durability.upper(), f"{rates[name]:,.0f}", *figures, f"{sizes[name] / 1e6:.1f}"])
                raw[f"{durability}: {name}"] = {
                    "turns_per_second": rates[name],
                    "first": first,
                    "last": last,
                    "p99": p99,
                }
                if name == BacktrailChatSession.name:
                    # The first tenth begins with fewer than 50 messages to read, so the second tenth is compared.
                    early = statistics.median(steady[count // 10 : count // 5])
                    targets.append(
                        Target("W4", f"turn, last tenth against second, {durability.upper()}", last / early, 1.15)
                    )
            ratio = rates[BacktrailChatSession.name] / rates[OpenAIAgentsSession.name]
            targets.append(
                Target("W4", f"turns/s against SQLiteSession, {durability.upper()}", ratio, 3, at_least=True)
            )
    columns = ["contender", "sync", "turns/s", "first tenth ms", "last tenth ms", "p99 ms", "MB on disk"]
    note = f"{count:,} messages of 1.2 KB, one commit each, the last {LAST} read after each; {rounds} rounds"
    return Outcome("W4: a chat", columns, rows, targets, raw, note)
