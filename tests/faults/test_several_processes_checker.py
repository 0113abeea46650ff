"""The checker of several processes sees each fault that is planted, and nothing that a partition excuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import backtrail
from backtrail.engines.memory import MemoryEngine
from several_processes.checker import Checker, Found
from several_processes.ledger import Ledger, Operation
from several_processes.views import Views

PRIMARY, REPLICA = ("primary", 1, False, False), ("replica", 2, False, False)


class World:
    """Two sides that are one, and what two clients were told. Each operation takes a second."""

    def __init__(self) -> None:
        self.engines = MemoryEngine(), MemoryEngine()
        self.store = backtrail.open(self.engines[0], replica=self.engines[1])
        self.ledger = Ledger()
        self.views = Views([None, None])
        self.now = 0.0

    def note(self, do: str, thread: str, *, client: int = 0, at: Any = PRIMARY, **facts: Any) -> Operation:
        """What a client was told, whether it is true or not."""
        made = Operation(client=client, life=0, do=do, thread=thread, begin=self.now, before=at, after=at, **facts)
        made.acknowledged = made.error is None
        made.end = self.now + 1 if made.acknowledged else made.end
        self.now += 2
        self.ledger.operations.append(made)
        return made

    def append(self, thread: str, token: str, **facts: Any) -> str:
        saved = self.store.thread(thread).append("messages", [token])
        self.note("save", thread, token=token, id=saved.id, by="append", **facts)
        return saved.id

    def alone(self, side: int) -> backtrail.Store:
        return backtrail.open(self.engines[side])

    def kinds(self) -> set[str]:
        self.store.catch_up()
        return self.found()

    def found(self) -> set[str]:
        one, two = (Found(self.alone(side)) for side in (0, 1))
        return {finding.kind for finding in Checker(self.ledger, self.views, one, two).findings()}


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.store.close()


def test_a_round_that_went_well_has_no_findings(world: World) -> None:
    id = world.append("t", "one")
    world.append("t", "two")
    world.store.thread("t").annotate(id, label="said")
    world.note("annotate", "t", target=id, label="said")
    world.store.thread("t").fork("f", at=id)
    world.note("fork", "f", source="t", target=id)
    gone = world.append("t", "three")
    world.append("t", "four")
    world.store.thread("t").delete(gone)
    world.note("delete at", "t", target=gone)
    world.append("u", "five")
    world.store.thread("u").delete()
    world.note("delete thread", "u")
    assert world.kinds() == set()


def test_a_save_that_nobody_has_is_lost(world: World) -> None:
    world.append("t", "one")
    world.note("save", "t", token="two", id="nowhere")
    assert world.kinds() == {"lost save"}


def test_a_save_without_an_answer_may_be_missing(world: World) -> None:
    world.append("t", "one")
    world.note("save", "t", token="two", id="nowhere", error="Unavailable")
    assert world.kinds() == set()


def test_a_save_with_another_content_is_lost_content(world: World) -> None:
    saved = world.store.thread("t").append("messages", ["one"])
    world.note("save", "t", token="two", id=saved.id)
    world.note("save", "t", token="one", error="Unavailable")
    assert world.kinds() == {"lost content"}


def test_a_save_under_the_name_of_a_thread_that_lost_is_there(world: World) -> None:
    saved = world.store.thread("t#diverged-1").append("messages", ["one"])
    world.note("save", "t", token="one", id=saved.id)
    assert world.kinds() == set()


def test_a_save_that_a_deletion_may_have_known_may_be_missing(world: World) -> None:
    world.note("save", "t", token="one", id="nowhere")
    world.note("delete thread", "t", client=1)
    assert world.kinds() == set()


def test_a_save_beyond_a_partition_is_not_excused_by_a_deletion(world: World) -> None:
    world.views.change(0, 0, "away", -10.0)
    world.views.change(1, 1, "away", -10.0)
    world.note("save", "t", token="one", id="nowhere", at=REPLICA)
    world.note("delete thread", "t", client=1)
    assert world.kinds() == {"lost save"}


def test_a_save_after_a_deletion_is_not_excused_by_it(world: World) -> None:
    world.note("delete thread", "t", client=1)
    world.note("save", "t", token="one", id="nowhere")
    assert world.kinds() == {"lost save"}


def test_a_deletion_that_found_nothing_excuses_nothing(world: World) -> None:
    world.note("save", "t", token="one", id="nowhere")
    world.note("delete thread", "t", error="ThreadNotFound")
    assert world.kinds() == {"lost save"}


def test_a_message_that_is_saved_twice_is_seen(world: World) -> None:
    world.append("t", "one")
    world.store.thread("u").append("messages", ["one"])
    assert world.kinds() == {"saved twice"}


def test_a_message_that_is_twice_in_a_state_is_seen(world: World) -> None:
    world.append("t", "one")
    world.append("t", "one")
    assert world.kinds() == {"saved twice", "message twice"}


def test_a_message_that_nobody_saved_is_seen(world: World) -> None:
    world.store.thread("t").append("messages", ["one"])
    assert world.kinds() == {"invented"}


def test_an_id_that_is_twice_in_a_history_is_seen(world: World) -> None:
    world.append("t", "one")
    one, two = (Found(world.alone(side)) for side in (0, 1))
    one.histories["t"] *= 2
    two.histories["t"] *= 2
    kinds = {finding.kind for finding in Checker(world.ledger, world.views, one, two).findings()}
    assert kinds == {"doubled id"}


def test_a_fork_that_nobody_has_is_lost(world: World) -> None:
    id = world.append("t", "one")
    world.note("fork", "f", source="t", target=id)
    assert world.kinds() == {"lost fork"}


def test_a_thread_that_was_deleted_and_exists_is_back(world: World) -> None:
    world.append("t", "one")
    world.note("delete thread", "t", client=1)
    assert world.kinds() == {"deleted thread is back"}


def test_a_thread_that_was_deleted_and_is_kept_beside_without_a_reason_is_back(world: World) -> None:
    saved = world.store.thread("t#diverged-1").append("messages", ["one"])
    world.note("save", "t", token="one", id=saved.id)
    world.note("delete thread", "t", client=1)
    assert world.kinds() == {"deleted thread is back"}


@pytest.mark.parametrize("name", ["t", "t#diverged-1"])
def test_a_thread_with_a_save_that_the_deletion_did_not_know_may_exist(world: World, name: str) -> None:
    saved = world.store.thread(name).append("messages", ["one"])
    world.note("save", "t", token="one", id=saved.id, at=REPLICA)
    world.note("delete thread", "t", client=1)
    assert world.kinds() == set()


def test_a_checkpoint_that_was_deleted_and_is_listed_is_back(world: World) -> None:
    id = world.append("t", "one")
    world.append("t", "two")
    world.note("delete at", "t", target=id)
    assert world.kinds() == {"deleted checkpoint is back"}


def test_a_deleted_checkpoint_that_a_head_stands_on_is_restored(world: World) -> None:
    id = world.append("t", "one")
    world.note("delete at", "t", target=id)
    assert world.kinds() == set()


def test_a_checkpoint_that_was_pruned_and_is_listed_is_back(world: World) -> None:
    id = world.append("kept-0", "one")
    world.append("kept-0", "two")
    world.ledger.pruned.append(("kept-0", id, world.now))
    assert world.kinds() == {"pruned checkpoint is back"}


def test_a_label_that_is_not_there_is_lost(world: World) -> None:
    id = world.append("t", "one")
    world.note("annotate", "t", target=id, label="said")
    assert world.kinds() == {"lost annotation"}


def test_a_label_that_a_later_one_replaced_must_not_come_back(world: World) -> None:
    id = world.append("t", "one")
    world.store.thread("t").annotate(id, label="old")
    world.note("annotate", "t", target=id, label="old")
    world.note("annotate", "t", target=id, label="new", client=1)
    assert world.kinds() == {"lost annotation"}


def test_of_two_labels_on_two_sides_one_is_there(world: World) -> None:
    id = world.append("t", "one")
    world.store.thread("t").annotate(id, label="old")
    world.note("annotate", "t", target=id, label="old", at=REPLICA)
    world.note("annotate", "t", target=id, label="new", client=1)
    assert world.kinds() == set()


def test_what_only_one_side_has_is_seen(world: World) -> None:
    world.append("t", "one")
    world.store.catch_up()
    only = world.alone(0).thread("t").append("messages", ["two"])
    world.note("save", "t", token="two", id=only.id)
    assert world.found() == {"sides differ"}


def test_a_side_that_is_damaged_is_seen(world: World) -> None:
    world.append("t", "one")
    one, two = (Found(world.alone(side)) for side in (0, 1))
    two.problems.append("the row is missing")
    kinds = {finding.kind for finding in Checker(world.ledger, world.views, one, two).findings()}
    assert kinds == {"verify"}


def test_errors_that_no_caller_may_see_are_seen(world: World) -> None:
    world.note("read", "t", error="Corrupt", trace="…")
    world.note("read", "t", error="Conflict")
    assert world.kinds() == {"forbidden error Corrupt"}


def test_a_checkpoint_that_is_said_to_be_missing_where_it_was_saved_is_seen(world: World) -> None:
    id = world.append("t", "one")
    world.note("annotate", "t", target=id, label="said", error="CheckpointNotFound", at=REPLICA)
    assert world.kinds() == set()
    world.note("annotate", "t", target=id, label="said", error="CheckpointNotFound")
    assert world.kinds() == {"NotFound that is not true"}


def test_a_head_that_is_not_where_its_only_writer_left_it_is_seen(world: World) -> None:
    first = world.append("own-0", "one")
    world.append("own-0", "two")
    world.store.thread("own-0").rewind(first)
    assert world.kinds() == {"wrong head"}


def test_processes_that_fail_or_do_not_catch_up_are_seen(world: World) -> None:
    world.ledger.faults.append("client 0.0: KeyError")
    world.ledger.unsettled.append("client 1.0: behind")
    assert world.kinds() == {"a client ended", "does not catch up"}
