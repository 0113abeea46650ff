"""Google ADK's sessions and artifacts on backtrail, run with a model that echoes its input."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.cli.service_registry import get_service_registry
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import backtrail
from backtrail.adapters.adk import BacktrailArtifactService, BacktrailSessionService, register

WHO: Any = {"app_name": "app/1", "user_id": "ü%"}


class Echo(BaseLlm):
    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        said = llm_request.contents[-1].parts[0].text
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"you said {said}")]))


def event(text: str = "x", **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, actions=EventActions(state_delta=delta))


def texts(session: Any) -> list[str]:
    return [one.content.parts[0].text for one in session.events]


def test_a_runner_stores_its_conversation_and_can_rewind_it(open_store: Any, run_async: Callable[[Any], Any]) -> None:
    async def talk() -> None:
        async with open_store() as store:
            service = BacktrailSessionService(store)
            agent = LlmAgent(name="echo", model=Echo(model="echo"), output_key="user:last")
            runner = Runner(app_name=WHO["app_name"], agent=agent, session_service=service)
            await service.create_session(**WHO, session_id="s")
            for text in ("one", "two"):
                message = types.Content(role="user", parts=[types.Part(text=text)])
                async for _ in runner.run_async(user_id=WHO["user_id"], session_id="s", new_message=message):
                    pass
            session = await BacktrailSessionService(store).get_session(**WHO, session_id="s")
            assert session is not None
            assert texts(session) == ["one", "you said one", "two", "you said two"]
            assert session.state["user:last"] == "you said two"
            first = session.events[0].invocation_id
            second = session.events[2].invocation_id
            assert first != second
            await runner.rewind_async(user_id=WHO["user_id"], session_id="s", rewind_before_invocation_id=second)
            rewound = await service.get_session(**WHO, session_id="s")
            assert rewound is not None
            assert rewound.events[-1].actions.rewind_before_invocation_id == second

    run_async(talk())


def test_state_of_apps_users_and_sessions_is_kept_apart_and_temporary_state_is_dropped(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def scopes() -> None:
        service = BacktrailSessionService(store)
        start = {"app:a": 1, "user:u": 2, "own": 3, "temp:t": 4}
        one = await service.create_session(**WHO, session_id="one", state=start)
        assert one.state == {"app:a": 1, "user:u": 2, "own": 3}
        await service.append_event(one, event(**{"app:a": 10, "user:v": 5, "own": 30, "temp:t": 6}))
        assert one.state == {"app:a": 10, "user:u": 2, "user:v": 5, "own": 30, "temp:t": 6}
        other = await service.create_session(**WHO, session_id="other")
        assert other.state == {"app:a": 10, "user:u": 2, "user:v": 5}
        stranger = await service.create_session(app_name=WHO["app_name"], user_id="stranger")
        assert stranger.state == {"app:a": 10}
        assert await service.get_user_state(**WHO) == {"u": 2, "v": 5}
        read = await service.get_session(**WHO, session_id="one")
        assert read is not None
        assert read.state == {"app:a": 10, "user:u": 2, "user:v": 5, "own": 30}
        assert read.events[0].actions.state_delta == {"app:a": 10, "user:v": 5, "own": 30}
        listed = (await service.list_sessions(**WHO)).sessions
        assert [(s.id, s.events, s.state.get("own")) for s in listed] == [("one", [], 30), ("other", [], None)]
        assert len((await service.list_sessions(app_name=WHO["app_name"])).sessions) == 3
        assert (await service.list_sessions(app_name="nobody")).sessions == []

    run_async(scopes())


def test_a_writer_with_an_old_session_gets_stale_session_error_and_changes_nothing(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def race() -> None:
        service = BacktrailSessionService(store)
        mine = await service.create_session(**WHO, session_id="s")
        theirs = await service.get_session(**WHO, session_id="s")
        assert theirs is not None
        await service.append_event(theirs, event("theirs"))
        with pytest.raises(StaleSessionError):
            await service.append_event(mine, event("mine", **{"app:x": 1}))
        assert mine.events == []
        fresh = await service.get_session(**WHO, session_id="s")
        assert fresh is not None
        assert texts(fresh) == ["theirs"]
        assert "app:x" not in fresh.state
        await service.append_event(fresh, event("again"))
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**WHO, session_id="s")
        await service.delete_session(**WHO, session_id="s")
        await service.delete_session(**WHO, session_id="s")
        assert await service.get_session(**WHO, session_id="s") is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(fresh, event("late"))

    run_async(race())


def test_the_newest_events_are_read_without_the_rest(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def windows() -> None:
        service = BacktrailSessionService(store)
        session = await service.create_session(**WHO, session_id="s")
        for i in range(200):
            one = event(str(i))
            one.timestamp = 1000.0 + i
            await service.append_event(session, one)

        async def window(**config: Any) -> list[str]:
            found = await service.get_session(**WHO, session_id="s", config=GetSessionConfig(**config))
            assert found is not None
            return texts(found)

        everything = [str(i) for i in range(200)]
        assert await window() == everything
        assert await window(num_recent_events=3) == ["197", "198", "199"]
        assert await window(num_recent_events=0) == []
        assert await window(after_timestamp=1190) == everything[190:]
        assert await window(after_timestamp=1005) == everything[5:]
        assert await window(after_timestamp=0) == everything
        assert await window(num_recent_events=5, after_timestamp=1198) == ["198", "199"]
        assert await window(num_recent_events=2, after_timestamp=0) == ["198", "199"]

    run_async(windows())


def test_partial_events_are_not_stored_and_bytes_in_events_are(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def events() -> None:
        service = BacktrailSessionService(store)
        session = await service.create_session(**WHO, session_id="s")
        await service.append_event(session, Event(author="a", partial=True))
        blob = types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="image/png"))
        await service.append_event(session, Event(author="a", content=types.Content(role="user", parts=[blob])))
        read = await BacktrailSessionService(store).get_session(**WHO, session_id="s")
        assert read is not None
        assert [one.content.parts[0].inline_data.data for one in read.events] == [b"\x00\xff"]

    run_async(events())


def test_each_save_of_an_artifact_is_a_version(open_store: Any, run_async: Callable[[Any], Any]) -> None:
    async def artifacts() -> None:
        async with open_store() as store:
            service = BacktrailArtifactService(store)
            file: Any = {**WHO, "session_id": "s", "filename": "../../a/b.png"}
            data = bytes(range(256)) * 1000
            picture = types.Part(inline_data=types.Blob(data=data, mime_type="image/png"))
            assert await service.load_artifact(**file) is None
            assert await service.list_versions(**file) == []
            assert await service.save_artifact(**file, artifact=picture, custom_metadata={"by": "me"}) == 0
            assert await service.save_artifact(**file, artifact={"text": "second"}) == 1
            first = await service.load_artifact(**file, version=0)
            assert first is not None
            assert first.inline_data.data == data
            newest = await service.load_artifact(**file)
            assert newest is not None
            assert newest.text == "second"
            assert await service.load_artifact(**file, version=2) is None
            assert await service.load_artifact(**file, version=-1) is None
            known = await service.list_artifact_versions(**file)
            assert [(one.version, one.mime_type, one.custom_metadata) for one in known] == [
                (0, "image/png", {"by": "me"}),
                (1, "text/plain", {}),
            ]
            version = await service.get_artifact_version(**file)
            assert version is not None
            assert version.version == 1
            await service.save_artifact(**WHO, filename="user:mine", artifact=types.Part(text="own"))
            assert await service.list_artifact_keys(**WHO, session_id="s") == ["../../a/b.png", "user:mine"]
            assert await service.list_artifact_keys(**WHO) == ["user:mine"]
            with pytest.raises(InputValidationError):
                await service.save_artifact(**WHO, filename="x", artifact=types.Part(text="whose?"))
            with pytest.raises(InputValidationError):
                await service.save_artifact(**file, artifact=types.Part())
            await service.delete_artifact(**file)
            await service.delete_artifact(**file)
            assert await service.list_artifact_keys(**WHO, session_id="s") == ["user:mine"]

    run_async(artifacts())


def test_adks_command_line_opens_backtrail_stores(tmp_path: Any, run_async: Callable[[Any], Any]) -> None:
    register()
    uri = f"backtrail+sqlite:///{tmp_path}/agents.db"
    sessions: Any = get_service_registry().create_session_service(uri)
    artifacts: Any = get_service_registry().create_artifact_service(uri)
    assert isinstance(sessions, BacktrailSessionService)
    assert isinstance(artifacts, BacktrailArtifactService)
    run_async(sessions.create_session(**WHO, session_id="s"))
    sessions.store.close()
    artifacts.store.close()
    with backtrail.open(tmp_path / "agents.db") as store:
        assert [info.id for info in store.threads()] == ["adk/app%2F1/ü%25/s"]
