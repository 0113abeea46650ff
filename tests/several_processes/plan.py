"""What happens in a round, drawn from a seed: the clients, and when their views, clocks and lives change."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

View = Literal["up", "away", "lost", "silent", "slow"]
#: What a client sees of (primary, replica), and how likely that is. `lost`: work is done, and its answer is lost.
VIEWS: tuple[tuple[tuple[View, View], float], ...] = (
    (("up", "up"), 0.30),
    (("up", "away"), 0.16),
    (("away", "up"), 0.16),
    (("away", "away"), 0.12),
    (("lost", "up"), 0.07),
    (("up", "lost"), 0.05),
    (("lost", "away"), 0.03),
    (("away", "lost"), 0.03),
    (("silent", "up"), 0.03),
    (("up", "silent"), 0.03),
    (("slow", "up"), 0.02),
)
SERVERS = ("redis", "postgres")
HOUR = 3600 * 10**9


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same in all rounds of one configuration."""

    primary: str
    replica: str
    replication: Literal["sync", "async"] = "sync"
    api: Literal["blocking", "async", "mixed"] = "mixed"
    spool: Literal["none", "all", "mixed"] = "mixed"
    seconds: float = 1.2  #: that the clients work

    def __str__(self) -> str:
        spool = {"none": "", "all": ", spool", "mixed": ", some with a spool"}[self.spool]
        return f"{self.primary}+{self.replica}, {self.replication}, {self.api}{spool}, {self.seconds:g} s"


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One client process, and the next one that takes its place."""

    number: int
    seed: int
    asynchronous: bool
    spool: int | None = None  #: the number of its spool, which another client may share
    clock: int = 0  #: nanoseconds that its clock is ahead at first
    dies_at_write: int | None = None  #: it kills itself at its n-th call that writes to a side
    dies_at_change: int | None = None  #: at the n-th change of a role or of a side's health that it is told of
    dies_in_catch_up: int | None = None  #: at the n-th call to a side once everything has healed


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens to a client or to a server, so many seconds after the begin of the round."""

    at: float
    do: Literal["view", "kill", "start", "stop", "continue", "clock", "server kill", "server stop", "server start"]
    client: int = 0
    side: int = 0
    view: tuple[View, View] = ("up", "up")
    clock: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One round."""

    setup: Setup
    seed: str
    clients: tuple[Client, ...]
    events: tuple[Event, ...]


def draw(setup: Setup, seed: str) -> Plan:
    """The round that `seed` stands for."""
    dice = random.Random(f"{seed} {setup.primary} {setup.replica} {setup.replication} {setup.api} {setup.spool}")
    clients = tuple(_client(setup, number, dice) for number in range(dice.choice((3, 3, 4, 5))))
    calm = dice.random() < 0.1  # everybody sees everything: only deaths and clocks
    events = [event for client in clients for event in _events(setup, client.number, dice, calm=calm)]
    for side, kind in enumerate((setup.primary, setup.replica)):
        if kind in SERVERS and dice.random() < 0.2:
            at = dice.uniform(0.1, setup.seconds)
            events.append(Event(at=at, side=side, do=dice.choice(("server kill", "server stop"))))
            events.append(Event(at=at + dice.uniform(0.2, 0.8), side=side, do="server start"))
    return Plan(setup=setup, seed=seed, clients=clients, events=tuple(sorted(events, key=lambda event: event.at)))


def _client(setup: Setup, number: int, dice: random.Random) -> Client:
    def perhaps(chance: float, low: int, high: int) -> int | None:
        drawn = dice.randint(low, high)
        return drawn if dice.random() < chance else None

    spooling = setup.spool == "all" or (setup.spool == "mixed" and dice.random() < 0.5)
    return Client(
        number=number,
        seed=dice.randrange(1 << 30),
        asynchronous=setup.api == "async" or (setup.api == "mixed" and dice.random() < 0.5),
        spool=dice.choice((number, number, number, 0)) if spooling else None,
        clock=dice.choice((0, 0, 0, -HOUR, HOUR, HOUR // 3600)),
        dies_at_write=perhaps(0.15, 3, int(80 * setup.seconds)),
        dies_at_change=perhaps(0.12, 2, 8),
        dies_in_catch_up=perhaps(0.15, 1, 60),
    )


def _events(setup: Setup, number: int, dice: random.Random, *, calm: bool) -> list[Event]:
    events: list[Event] = []
    at = dice.uniform(0.05, 0.4)
    while at < setup.seconds and not calm:
        (view,) = dice.choices([view for view, _ in VIEWS], [chance for _, chance in VIEWS])
        events.append(Event(at=at, client=number, do="view", view=view))
        at += dice.uniform(0.05, max(0.5, setup.seconds / 4))
    happens = dice.random()
    when = dice.uniform(0.1, setup.seconds)
    if happens < 0.35:
        events.append(Event(at=when, client=number, do="kill"))
        if dice.random() < 0.7:
            events.append(Event(at=when + dice.uniform(0, setup.seconds / 2), client=number, do="start"))
    elif happens < 0.55:
        events.append(Event(at=when, client=number, do="stop"))
        events.append(Event(at=when + dice.choice((0.1, 0.8, 1.6)), client=number, do="continue"))
    elif happens < 0.65:
        events.append(Event(at=when, client=number, do="clock", clock=dice.choice((-HOUR, HOUR))))
    return events


def held(setup: Setup, seed: str, views: tuple[tuple[View, View], ...]) -> Plan:
    """A round in which each client has a spool, and keeps the view that is given for it after a moment with both."""
    dice = random.Random(f"{seed} {setup}")
    clients = tuple(
        Client(number=number, seed=dice.randrange(1 << 30), asynchronous=number % 2 == 1, spool=number)
        for number in range(len(views))
    )
    events = tuple(Event(at=0.2, client=number, do="view", view=view) for number, view in enumerate(views))
    return Plan(setup=setup, seed=seed, clients=clients, events=events)
