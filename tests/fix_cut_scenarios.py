"""What a mirror goes through in the tests of cuts: sides that go away, with and without an answer, and come back."""

from __future__ import annotations

from fix_cuts import World


def failover(world: World) -> None:
    world.append("t"), world.append("u"), world.catch_up()
    world.replica.up = False
    world.append("t"), world.append("new"), world.catch_up()
    world.replica.up, world.primary.lose_answers = True, 1
    world.append("t"), world.append("new"), world.append("t")
    world.primary.up = True
    world.catch_up(), world.append("t")


def there_and_back(world: World) -> None:
    world.append("t"), world.catch_up()
    world.primary.lose_answers = 1
    world.append("t"), world.append("t")
    world.primary.up, world.replica.lose_answers = True, 1
    world.append("t"), world.append("t")
    world.replica.up = True
    world.catch_up(), world.append("t")


def both_unreachable(world: World) -> None:
    world.append("t"), world.catch_up()
    world.primary.lose_answers = world.replica.lose_answers = 1
    world.append("t"), world.append("t"), world.append("new")
    world.replica.up = True
    world.append("t"), world.append("new")
    world.primary.up = True
    world.catch_up(), world.append("t")


def one_name_twice(world: World) -> None:
    world.append("other"), world.catch_up()
    world.replica.up = False
    world.append("t"), world.append("t"), world.catch_up()
    world.replica.up, world.primary.up = True, False
    world.append("t"), world.append("t")
    world.primary.up, world.replica.lose_answers = True, 1
    world.append("t")
    world.replica.up = True
    world.catch_up(), world.append("t")


def a_fork_and_its_name(world: World) -> None:
    world.append("t"), world.append("t"), world.catch_up()
    world.replica.up = False
    world.append("t"), world.fork(), world.append("fork")
    world.replica.up, world.primary.lose_answers = True, 1
    world.append("t"), world.append("fork"), world.append("t")
    world.primary.up = True
    world.catch_up(), world.append("fork")


def said(world: World) -> None:
    one, two = world.append("t"), world.append("t")
    world.catch_up()
    world.replica.up = False
    world.label(one, "one"), world.catch_up()
    world.replica.up, world.primary.lose_answers = True, 1
    world.label(two, "two"), world.append("t")
    world.primary.up = True
    world.catch_up(), world.append("t")


def deleted(world: World) -> None:
    one, two = world.append("t"), world.append("t")
    world.append("t"), world.append("u"), world.catch_up()
    world.replica.up = False
    world.delete_checkpoint(one), world.delete_thread("u"), world.append("u"), world.catch_up()
    world.replica.up, world.primary.lose_answers = True, 1
    world.delete_checkpoint(two), world.append("t"), world.delete_thread("u")
    world.primary.up = True
    world.catch_up(), world.append("u"), world.delete_thread("u"), world.append("u")


def pruned(world: World) -> None:
    world.append("t"), world.append("t"), world.append("t"), world.catch_up()
    world.replica.up = False
    world.append("t"), world.prune()
    world.replica.up, world.primary.lose_answers = True, 1
    world.append("t"), world.append("t"), world.prune()
    world.primary.up = True
    world.catch_up(), world.append("t"), world.prune()


SCENARIOS = [
    failover,
    there_and_back,
    both_unreachable,
    one_name_twice,
    a_fork_and_its_name,
    said,
    deleted,
    pruned,
]
