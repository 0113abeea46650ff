"""Whose turn it is to write: a queue with a leader, and no thread of its own.

One caller has the turn. Others put a ticket into the queue and sleep on it. Whoever gives the turn back hands it to the
first ticket in the queue: that caller wakes up as the leader, takes all the tickets that are queued by then, does their
work together with its own, and wakes their callers, who find it done. The turn is never up for grabs while somebody
waits, so nobody starves.

An interrupt (Ctrl-C) can hit the one moment in which the turn is taken and nothing is there yet to give it back. No
caller ever asks for the turn while it has it; so if the one who has it does, it was lost that way, and is found again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Ticket:
    """A piece of work that waits for its turn; `alone`, a caller that wants the turn for itself."""

    __slots__ = ("alone", "argument", "caller", "error", "gate", "leads", "result", "work")

    def __init__(self, work: Callable[..., Any], argument: Any, *, alone: bool = False) -> None:
        self.work = work
        self.argument = argument
        self.alone = alone
        self.result: Any = None
        self.error: Exception | None = None
        self.leads = False
        self.caller = 0  # which thread waits
        self.gate = threading.Lock()
        self.gate.acquire()


class WriteQueue:
    """Gives the turn to one caller at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._holder = 0  # which thread has the turn
        self._queue: deque[Ticket] = deque()
        self.crowded = False  #: whether anybody ever had to wait

    def take(self) -> bool:
        """Take the turn if nobody has it."""
        with self._guard:
            me = threading.get_ident()
            if self._taken and not self._lost(me):
                return False
            self._holder, self._taken = me, True
            return True

    def wait(self, ticket: Ticket, timeout: float = -1) -> bool:
        """Queue up. True: it is our turn now, to be given back; False: our work was done by another, or time is up."""
        with self._guard:
            ticket.caller = threading.get_ident()
            free = not self._taken or self._lost(ticket.caller)
            self._queue.append(ticket)
            if free:
                self._holder = ticket.caller
                self._taken = ticket.leads = True
                return True
            self.crowded = True
        arrived = False
        try:
            arrived = ticket.gate.acquire(timeout=timeout)
        finally:
            if not arrived:
                self._leave(ticket)
        return ticket.leads

    def batch(self) -> list[Ticket]:
        """The leader takes what is queued: itself first, and all after it up to one that wants to be alone."""
        with self._guard:
            found = [self._queue.popleft()]
            while self._queue and not (self._queue[0].alone or found[0].alone):
                found.append(self._queue.popleft())
            return found

    def give(self) -> None:
        """Give the turn back: to the first in the queue, if there is one."""
        with self._guard:
            if self._queue:
                following = self._queue[0]
                following.leads = True
                self._holder = following.caller
                following.gate.release()
            else:
                self._taken = False

    def _lost(self, me: int) -> bool:
        """Whether the turn is with this very caller, who was interrupted and forgot; what it left in the queue goes."""
        if self._holder != me:
            return False
        self._queue = deque(ticket for ticket in self._queue if ticket.caller != me)
        return True

    def _leave(self, ticket: Ticket) -> None:
        """Step out of the queue, because time is up or the caller was interrupted."""
        with self._guard:
            if ticket in self._queue:  # if not, a leader is at work on it: too late
                self._queue.remove(ticket)
            leads, ticket.leads = ticket.leads, False
        if leads:
            self.give()
