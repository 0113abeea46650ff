"""A chat server for many users of several customers, on one store.

    python examples/web_chat.py            some requests, and their answers
    python examples/web_chat.py --serve    a server at http://127.0.0.1:8000

Each customer has a namespace of the store, so that nothing of another one can be read by any name. Each user has
sessions. The server keeps nothing in memory: any number of its processes may run behind a balancer. It needs the extra
`ui` (Starlette and uvicorn). It prints:

    acme, ann: Hello, ann. You have said 1 thing.
    acme, ann: Hello, ann. You have said 2 things.
    acme, bob: Hello, bob. You have said 1 thing.
    initech, ann: Hello, ann. You have said 1 thing.
    acme, ann has 4 messages
    8 users at once: 8 answers, 8 chats
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import backtrail
import backtrail.aio


def model(messages: list[dict[str, Any]], user: str) -> str:
    """A model that answers from a script."""
    said = sum(message["role"] == "user" for message in messages)
    return f"Hello, {user}. You have said {said} thing{'s' if said > 1 else ''}."


class Chats:
    """The store of each customer, opened when it is first asked for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: dict[str, asyncio.Task[backtrail.aio.AsyncStore]] = {}

    async def of(self, customer: str) -> backtrail.aio.AsyncStore:
        if customer not in self._opened:
            self._opened[customer] = asyncio.ensure_future(backtrail.aio.open(self._url, namespace=customer))
        try:
            return await asyncio.shield(self._opened[customer])  # a request that is given up does not stop it
        except backtrail.Unavailable:
            self._opened.pop(customer, None)  # the next request tries again
            raise

    async def close(self) -> None:
        for opened in self._opened.values():
            await (await opened).close()


def application(url: str, customers: set[str]) -> Starlette:
    chats = Chats(url)

    async def chat(request: Request) -> JSONResponse:
        # In earnest, both come from the token that the user signed in with, and never from the path.
        customer, user = request.path_params["customer"], request.path_params["user"]
        if customer not in customers:
            return JSONResponse({"error": "unknown customer"}, 404)
        session = (await chats.of(customer)).session(f"{user}/main")
        if request.method == "POST":
            await session.add("user", (await request.json())["text"])
            reply = model(await session.messages(last=50), user)
            await session.add("assistant", reply)
            return JSONResponse({"reply": reply})
        return JSONResponse({"messages": await session.messages()})

    app = Starlette(routes=[Route("/{customer}/{user}", chat, methods=["GET", "POST"])])
    app.state.chats = chats
    return app


# -- some requests ---------------------------------------------------------------------------------------------------


async def ask(port: int, path: str, text: str | None = None) -> dict[str, Any]:
    def send() -> dict[str, Any]:
        body = None if text is None else json.dumps({"text": text}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", body, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    return await asyncio.to_thread(send)


async def main(folder: str) -> None:
    app = application(str(Path(folder, "backtrail.db")), {"acme", "initech"})
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    for who in ("acme/ann", "acme/ann", "acme/bob", "initech/ann"):
        print(f"{who.replace('/', ', ')}:", (await ask(port, who, "hello"))["reply"])
    print("acme, ann has", len((await ask(port, "acme/ann"))["messages"]), "messages")

    answers = await asyncio.gather(*(ask(port, f"acme/user-{n}", "hello") for n in range(8)))
    store = await app.state.chats.of("acme")
    print(f"8 users at once: {len(answers)} answers, {len(await store.sessions(prefix='user-'))} chats")

    server.should_exit = True
    await serving
    await app.state.chats.close()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        uvicorn.run(application("backtrail.db", {"acme", "initech"}))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(folder))
