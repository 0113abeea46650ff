"""Sessions, on each engine, through the sync and the async facade."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import backtrail

LONG = "long enough to be kept outside of the root; " * 8


def say(number: int) -> dict[str, Any]:
    return {"role": "user" if number % 2 else "assistant", "content": f"{number}: {LONG}"}


def fill(session: Any, count: int) -> list[dict[str, Any]]:
    said = [say(number) for number in range(1, count + 1)]
    for message in said:
        session.append(message)
    return said


def test_a_session_that_does_not_exist_reads_as_empty_and_is_not_made_by_reading(store: Any) -> None:
    session = store.session("s")
    assert session.messages() == session.messages(last=3) == session.ids() == []
    assert (session.summary, session.user_turns, session.count()) == ("", 0, 0)
    assert session.pop() is None
    assert session.truncate(keep_last=1) is None
    assert session.clear() is None
    assert not session.exists()
    assert store.threads() == []


def test_messages_come_back_in_order_and_as_they_were(store: Any) -> None:
    session = store.session("s")
    session.add("user", "hello", name="ada")
    session.append({"role": "assistant", "content": [{"type": "image", "source": b"\x89PNG"}], "n": 1.0})
    session.extend([{"role": "user", "content": "a"}, {"anything": {"at": ["all"]}}])
    assert session.messages() == [
        {"role": "user", "content": "hello", "name": "ada"},
        {"role": "assistant", "content": [{"type": "image", "source": b"\x89PNG"}], "n": 1.0},
        {"role": "user", "content": "a"},
        {"anything": {"at": ["all"]}},
    ]
    assert session.user_turns == 2
    assert session.exists()


def test_every_append_is_one_checkpoint_that_writes_only_its_message(store: Any) -> None:
    session = store.session("s")
    fill(session, 30)
    early = session.append(say(31))
    fill(session, 100)
    late = session.append(say(132))
    assert (early.step, late.step) == (31, 132)
    assert late.written <= early.written + 16


def test_the_last_messages_are_read_without_the_others(opener: Any, payload_reads: Any) -> None:
    said = fill(opener().session("s"), 200)
    store = opener()
    with payload_reads(store) as reads:
        assert store.session("s").messages(last=5) == said[-5:]
    assert sum(rows for rows, _ in reads) <= 10


def test_a_warm_append_is_one_round_trip(store: Any) -> None:
    session = store.session("s")
    fill(session, 20)
    engine = store._core.context.engine
    calls: list[str] = []

    def spy(name: str) -> None:
        method = getattr(engine, name)

        async def call(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return await method(*args, **options)

        setattr(engine, name, call)

    names = ["commit", "head", "tip", "row", "rows", "steps", "payloads", "blobs", "branches", "locate"]
    for name in names:
        spy(name)
    try:
        session.add("user", "once")
    finally:
        for name in names:
            delattr(engine, name)
    assert calls == ["commit"]


@pytest.mark.parametrize("count", [1, 3, 40, 120])
def test_pop_takes_the_last_message_and_the_session_goes_on(store: Any, count: int) -> None:
    session = store.session("s")
    said = fill(session, count)
    assert session.pop() == said[-1]
    assert session.messages() == said[:-1]
    assert session.user_turns == sum(m["role"] == "user" for m in said[:-1])
    session.append(say(count + 1))
    assert session.messages() == [*said[:-1], say(count + 1)]


def test_pop_inside_a_batch_keeps_the_rest_of_it(store: Any) -> None:
    session = store.session("s")
    said = [say(number) for number in range(10)]
    session.extend(said)
    assert [session.pop(), session.pop()] == [said[9], said[8]]
    assert session.messages() == said[:8]
    assert session.messages(last=3) == said[5:8]


def test_many_pops_and_appends_lose_no_message(store: Any) -> None:
    session = store.session("s")
    model: list[dict[str, Any]] = []
    for number in range(120):
        session.append(say(number))
        model.append(say(number))
        if number % 2:
            assert session.pop() == model.pop()
    assert session.messages() == model
    assert session.messages(last=7, whole=False) == model[-7:]


def test_clear_empties_the_session_and_keeps_the_history(store: Any) -> None:
    session = store.session("s")
    said = fill(session, 5)
    session.set_summary("so far")
    full = session.thread.head
    session.clear()
    assert (session.messages(), session.summary, session.user_turns) == ([], "", 0)
    assert session.exists()
    assert session.messages(at=full) == said
    session.add("user", "again")
    assert session.ids() == ["#6"]


def test_replace_takes_given_or_counted_turns_and_rewrites_only_what_changed(store: Any) -> None:
    session = store.session("s")
    said = fill(session, 60)
    edited = [*said[:30], {"role": "user", "content": "instead"}, *said[31:]]
    saved = session.replace(edited)
    assert session.messages() == edited
    assert saved.written < saved.size / 10
    assert session.user_turns == sum(m["role"] == "user" for m in edited)
    session.replace([{"role": "user", "content": "x"}], user_turns=9)
    assert (session.messages(), session.user_turns) == ([{"role": "user", "content": "x"}], 9)


def test_replace_is_refused_if_another_writer_came_between(opener: Any) -> None:
    mine, other = opener().session("s"), opener().session("s")
    mine.add("user", "a")
    said = mine.messages()
    other.add("assistant", "b")
    with pytest.raises(backtrail.Conflict):
        mine.replace([*said, {"role": "user", "content": "c"}])
    assert len(mine.messages()) == 2
    mine.replace([{"role": "user", "content": "c"}])
    assert mine.messages() == [{"role": "user", "content": "c"}]


def test_appends_of_two_handles_are_both_kept(opener: Any) -> None:
    one, other = opener().session("s"), opener().session("s")
    for number in range(20):
        one.append({"role": "user", "content": f"one {number}"})
        other.append({"role": "user", "content": f"other {number}"})
    assert one.count() == other.user_turns == 40


@pytest.mark.parametrize("keep", [0, 1, 7, 59, 60, 200])
def test_truncate_keeps_the_last_and_the_history_keeps_all(store: Any, keep: int) -> None:
    session = store.session("s")
    said = fill(session, 60)
    full = session.thread.head
    session.truncate(keep_last=keep)
    kept = said[-keep:] if keep else []
    assert session.messages() == kept
    assert session.user_turns == 30
    assert session.messages(at=full) == said
    session.append(say(61))
    assert session.messages() == [*kept, say(61)]


def test_truncate_writes_little_whatever_the_length(store: Any) -> None:
    session = store.session("s")
    fill(session, 300)
    assert session.truncate(keep_last=250).written < 300
    assert session.truncate(keep_last=20).written < 300


def test_truncate_inside_a_batch_reports_the_true_size(store: Any) -> None:
    session = store.session("s")
    session.extend([say(number) for number in range(100, 140)])
    cut = session.truncate(keep_last=10)
    assert session.messages() == [say(number) for number in range(130, 140)]
    other = store.session("other")
    other.extend([say(number) for number in range(130, 140)])
    assert cut.size == pytest.approx(other.thread.head.size, abs=32)


def test_the_small_rest_of_a_huge_batch_is_read_without_the_batch(store: Any, payload_reads: Any) -> None:
    session = store.session("s")
    session.extend([{"role": "user", "content": f"{number} " + "x" * 2000} for number in range(200)])
    session.truncate(keep_last=1)
    with payload_reads(store) as reads:
        assert len(session.messages()) == 1
    assert sum(size for _, size in reads) < 10_000


def test_truncate_before_a_message_finds_it_by_its_id_or_its_number(store: Any) -> None:
    session = store.session("s")
    for number in range(1, 101):
        session.add("user", LONG, id=f"m{number}")
    session.truncate(before="m91")
    assert session.ids() == [f"m{number}" for number in range(91, 101)]
    session.truncate(before="#95")
    assert session.ids()[0] == "m95"
    with pytest.raises(backtrail.NotFound, match="m3"):
        session.truncate(before="m3")


def test_truncate_at_a_checkpoint_keeps_what_came_after_it(store: Any) -> None:
    session = store.session("s")
    fill(session, 10)
    here = session.thread.head
    session.add("user", "later")
    session.truncate(at=here)
    assert session.messages() == [{"role": "user", "content": "later"}]


@pytest.mark.parametrize("bad", [{}, {"keep_last": 1, "before": "x"}, {"keep_last": -1}])
def test_truncate_takes_exactly_one_argument(store: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(backtrail.InvalidInput):
        store.session("s").truncate(**bad)


def test_ids_are_the_messages_own_or_their_numbers_and_survive_a_cut(store: Any) -> None:
    session = store.session("s")
    session.append({"role": "user", "content": LONG})
    session.append({"role": "assistant", "content": LONG, "id": "msg_1"})
    session.append({"type": "user", "uuid": "u-1", "message": {"role": "user", "content": LONG}})
    session.append({"lc": 1, "id": ["langchain", "HumanMessage"], "kwargs": {"content": LONG, "id": "lc-1"}})
    session.append({"type": "human", "data": {"content": LONG, "id": "h-1"}})
    session.append({"role": "user", "content": LONG})
    assert session.ids() == ["#1", "msg_1", "u-1", "lc-1", "h-1", "#6"]
    session.truncate(keep_last=2)
    assert session.ids() == ["h-1", "#6"]
    assert session.user_turns == 5


def test_a_summary_is_kept_beside_the_messages(opener: Any) -> None:
    session = opener().session("s")
    session.add("user", "hello")
    session.set_summary("they greet")
    assert opener().session("s").summary == "they greet"
    session.set_summary(LONG * 400)
    assert session.summary == LONG * 400
    session.set_summary("")
    assert session.summary == ""
    assert session.messages() == [{"role": "user", "content": "hello"}]


def test_a_rewind_to_a_snapshot_brings_back_turns_and_summary(store: Any) -> None:
    session = store.session("s")
    session.add("user", "first")
    session.set_summary("one")
    session.snapshot("m1")
    said = session.messages()
    session.add("user", "second")
    session.set_summary("two")
    session.snapshot("m2")
    session.rewind("m1")
    assert (session.messages(), session.user_turns, session.summary) == (said, 1, "one")
    with pytest.raises(backtrail.NoCheckpoint, match="m2"):
        session.rewind("m2")
    session.thread.undo()
    assert session.user_turns == 2


def test_a_message_without_a_snapshot_cannot_be_rewound_to(store: Any) -> None:
    with pytest.raises(backtrail.NoCheckpoint):
        store.session("never").rewind("m")
    session = store.session("s")
    session.add("user", "x", id="m")
    with pytest.raises(backtrail.NoCheckpoint, match="'m'"):
        session.rewind("m")


def test_a_snapshot_taken_twice_means_the_newer_one(store: Any) -> None:
    session = store.session("s")
    session.add("user", "a")
    session.snapshot("m")
    session.add("user", "b")
    session.snapshot("m")
    session.add("user", "c")
    session.rewind("m")
    assert [m["content"] for m in session.messages()] == ["a", "b"]


def test_a_fork_shares_the_past_and_not_the_future(store: Any) -> None:
    session = store.session("s")
    said = fill(session, 40)
    fork = session.fork()
    named = session.fork("copy")
    fork.add("user", "here")
    session.add("user", "there")
    assert (fork.id, named.id) == ("s#fork-1", "copy")
    assert fork.messages() == [*said, {"role": "user", "content": "here"}]
    assert named.messages() == said
    assert [info.kind for info in store.threads()] == ["session"] * 3
    with pytest.raises(backtrail.Conflict):
        session.fork("copy")


def test_save_returns_the_head_or_makes_a_checkpoint_for_a_label(store: Any) -> None:
    session = store.session("s")
    assert session.save().step == 1
    added = session.add("user", "x")
    assert session.save().id == added.id
    labelled = session.save(label="milestone", tags=["t"], custom={"k": 1})
    assert labelled.step == 3
    assert session.thread.find(label="milestone")[0].id == labelled.id
    assert session.messages() == [{"role": "user", "content": "x"}]


def test_sessions_are_listed_newest_first_with_their_counts(store: Any) -> None:
    for name in ("a", "b", "c"):
        store.session(name).add("user", "x")
    store.session("a").add("assistant", "y")
    store.thread("not-a-session").save({"n": 1})
    listed = store.sessions()
    assert [(info.id, info.messages, info.user_turns) for info in listed] == [("a", 2, 1), ("c", 1, 1), ("b", 1, 1)]
    assert [info.id for info in store.sessions(limit=1, after="a")] == ["c"]
    assert [info.id for info in store.sessions(prefix="b")] == ["b"]


def test_listed_counts_are_right_after_a_rewind_a_fork_and_a_plain_save(store: Any) -> None:
    session = store.session("s")
    session.add("user", "a")
    session.snapshot("m")
    session.add("user", "b")
    session.rewind("m")
    session.fork("f")
    store.session("t").add("user", "x")
    store.thread("t").save({"messages": [{"role": "user", "content": "1"}] * 3, "user_turns": 3})
    found = {info.id: (info.messages, info.user_turns) for info in store.sessions()}
    assert found == {"s": (1, 1), "f": (1, 1), "t": (3, 3)}
    assert session.info().messages == 1


def test_a_session_whose_thread_was_saved_with_something_else_does_not_spoil_the_listing(store: Any) -> None:
    store.session("s").add("user", "x")
    store.session("t").add("user", "x")
    store.thread("s").save({"messages": 5, "user_turns": "many"})
    store.session("t").thread.save({"messages": {"no": "list"}, "user_turns": None})
    found = {info.id: (info.messages, info.user_turns) for info in store.sessions()}
    assert found == {"s": (0, 0), "t": (0, 0)}


def test_a_deleted_session_is_gone_and_deleting_it_again_is_no_error(store: Any) -> None:
    session = store.session("s")
    session.add("user", "x")
    session.delete()
    session.delete()
    assert not session.exists()
    assert store.sessions() == []
    session.add("user", "again")
    assert session.ids() == ["#1"]


@pytest.mark.parametrize("bad", ["text", None, 3, ["role"], ("a", "b")])
def test_a_message_that_is_not_a_dict_is_refused(store: Any, bad: Any) -> None:
    session = store.session("s")
    with pytest.raises(backtrail.InvalidInput, match="dict"):
        session.append(bad)
    with pytest.raises(backtrail.InvalidInput):
        session.extend([{"role": "user"}, bad])
    assert not session.exists()


def test_bad_arguments_are_refused_with_their_names(store: Any) -> None:
    session = store.session("s")
    with pytest.raises(backtrail.InvalidInput, match="errors"):
        store.session("s", errors="ignore")
    with pytest.raises(backtrail.InvalidInput, match="last"):
        session.messages(last=-1)
    with pytest.raises(backtrail.InvalidInput, match="summary"):
        session.set_summary(3)
    with pytest.raises(backtrail.InvalidInput, match="message id"):
        session.snapshot("")
    with pytest.raises(backtrail.InvalidInput, match="user_turns"):
        session.replace([], user_turns=-1)
    with pytest.raises(backtrail.InvalidInput):
        store.session("")


def test_added_messages_do_not_change_with_the_callers_objects(store: Any) -> None:
    session = store.session("s")
    message = {"role": "user", "content": [{"text": "a"}]}
    session.append(message)
    message["content"][0]["text"] = "b"  # type: ignore[index]
    session.messages()[0]["content"][0]["text"] = "c"
    assert session.messages() == [{"role": "user", "content": [{"text": "a"}]}]


def test_threads_that_append_at_once_lose_nothing(tmp_path: Any) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        session = store.session("s")

        def work(name: int) -> None:
            for number in range(50):
                session.append({"role": "user", "content": f"{name}/{number}"})

        writers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        said = [m["content"] for m in session.messages()]
    assert len(said) == len(set(said)) == 200
    for name in range(4):
        own = [text for text in said if text.startswith(f"{name}/")]
        assert own == [f"{name}/{number}" for number in range(50)]


@pytest.mark.parametrize("content", ["cut \ud83d", [{"type": "text", "text": "cut \ud83d"}]], ids=["flat", "deep"])
def test_the_end_of_a_session_is_read_again_and_again_whatever_text_it_holds(store: Any, content: Any) -> None:
    session = store.session("s")
    messages = [{"role": "user", "content": content, "n": number} for number in range(20)]
    for message in messages:
        session.append(message)
        assert session.messages(last=2) == messages[max(0, message["n"] - 1) : message["n"] + 1]
    assert session.messages(last=5) == messages[-5:]
