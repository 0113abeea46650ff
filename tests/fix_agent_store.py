"""A store as coding agents leave it: long output, a failed tool, an image, a fork, a rewind, RTL, CJK, several
shapes."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import struct
import zlib
from typing import Any

import backtrail

BEGIN = dt.datetime(2026, 11, 17, 9, 0, tzinfo=dt.UTC)


def png(width: int, height: int) -> bytes:
    """A small picture."""
    rows = b"".join(
        b"\0" + bytes(value for x in range(width) for value in (x * 255 // width, y * 255 // height, 160))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class _Agent:
    """Writes messages in Anthropic's shape, with times and tokens."""

    def __init__(self, thread: backtrail.Thread[Any]) -> None:
        self.thread = thread
        self._seconds = itertools.count(7, 7)

    def _time(self) -> str:
        return (BEGIN + dt.timedelta(seconds=next(self._seconds))).isoformat()

    def ask(self, text: str) -> None:
        self.thread.append("messages", [{"role": "user", "content": text, "timestamp": self._time()}])

    def say(self, *blocks: dict[str, Any], output: int = 180, **options: Any) -> None:
        usage = {"input_tokens": 1200, "cache_read_input_tokens": 900, "output_tokens": output}
        facts = {"model": "claude-sonnet-4", "usage": usage, "timestamp": self._time()}
        self.thread.append("messages", [{"role": "assistant", "content": list(blocks), **facts}], **options)

    def result(self, id: str, content: Any, *, failed: bool = False, **options: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed}
        self.thread.append("messages", [{"role": "user", "content": [block], "timestamp": self._time()}], **options)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


PLAN = '''The app is small. Here is the plan:

| file | change |
| --- | --- |
| `limiter.py` | a `TokenBucket` class |
| `app.py` | calls it before each request |

```python
class TokenBucket:
    """Allows `rate` requests per second, and bursts of `size`."""

    def take(self, now: float) -> bool:
        return self.tokens >= 1  # after the refill
```'''
PATCH = """--- a/limiter.py
+++ b/limiter.py
@@ -4,3 +4,4 @@
     def take(self, now):
-        return self.tokens >= 1
+        self.refill(now)
+        return self.tokens >= 1
"""


def build_agent_store(store: backtrail.Store) -> None:
    """Fill a store."""
    thread: backtrail.Thread[Any] = store.thread("api/rate-limiter")
    agent = _Agent(thread)
    rules = "You are a careful engineer. " + "Follow the house rules. " * 90
    thread.save(
        {"messages": [{"role": "system", "content": rules}], "plan": {"steps": ["read", "write"]}}, label="start"
    )
    agent.ask("Add a **token bucket** rate limiter to `app.py`.\n\n- keep it thread-safe\n- add tests")
    agent.say(
        {"type": "thinking", "thinking": "I should read the app first."},
        _text("I'll look at the application first."),
        _call("c1", "bash", command="ls -la && sed -n 1,80p app.py"),
    )
    agent.result("c1", "\n".join(f"{n:3} a line of a long output with some words in it" for n in range(400)))
    agent.say(
        _text(PLAN),
        _call(
            "c2", "edit", file_path="app.py", old_string="def handle(r):\n    go(r)\n", new_string="def handle(r):\n"
        ),
        _call("c3", "edit", file_path="limiter.py", old_string="", new_string="class TokenBucket: ...\n"),
        output=640,
    )
    agent.result("c2", "The file app.py has been updated.")
    agent.result("c3", "limiter.py: created")
    agent.say(_call("c4", "bash", command="pytest -q"))
    agent.result("c4", "FAILED test_limiter.py::test_burst - assert 11 == 10", failed=True, tags=["red"])
    agent.say(
        _text(
            "One test fails: the burst lets one request too many through.\n\n> The bucket starts full.\n\n- [x] read"
        ),
        _call("c5", "apply_patch", patch=PATCH),
    )
    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png(120, 60)).decode()}
    agent.result("c5", [_text("ok"), {"type": "image", "source": picture}])
    agent.say(
        _text("All tests pass now. See <https://example.com/docs> and ![x](https://example.com/x.png)."), label="green"
    )
    fork = thread.fork("api/rate-limiter-redis", at=8)
    fork.append("messages", [{"role": "assistant", "content": "Another way: count in Redis."}])
    fork.append("messages", [{"role": "user", "content": "No, keep it in memory."}])
    fork.update({"plan": {"steps": ["read", "write", "count"]}})
    agent.ask("اكتب ملخصًا قصيرًا بالعربية، ثم 日本語で一行。")
    agent.say(
        _text("تمت إضافة محدد المعدل واجتازت كل الاختبارات.\n\nレートリミッターを追加し、テストはすべて通りました。")
    )
    thread.rewind(12)
    agent.ask("Now per client, please")
    agent.say(_call("c9", "grep", pattern="bucket", path="."))
    _other_shapes(store)


def _other_shapes(store: backtrail.Store) -> None:
    vectors: backtrail.Thread[Any] = store.thread("vectors/embedding")
    vectors.save({"embedding": [0.1 * n for n in range(300)], "model": "e5"})
    support = store.session("support/42")
    support.add("user", "My parcel is late")
    support.add("assistant", "I am sorry. Which one?")
    store.thread("gemini/chat").save(
        {
            "messages": [
                {"role": "user", "parts": [{"text": "Weather in Oslo?"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"temp": 3}}}]},
                {"role": "model", "parts": [{"text": "It is **3 °C**."}]},
            ]
        }
    )
