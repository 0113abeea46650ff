"""The queue of writers: a lock that is handed from caller to caller, with a leader and without a thread of its own.

One caller owns the queue. Others put a ticket into it and sleep on the ticket. The owner releases the queue by handing
it to the first ticket: that caller wakes up as the leader, takes all the tickets that are queued by then, does their
work together with its own, and wakes their callers. The queue is never free while a caller waits, so none starves.

An interrupt (Ctrl-C) can come just after a caller has acquired the queue and before it can release it. No caller ever
acquires a queue that it owns; so if the owner does, an earlier call was interrupted, and it simply continues.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Ticket:
    """A piece of work that waits; `alone`: its caller wants the queue for itself."""

    __slots__ = ("alone", "argument", "caller", "error", "gate", "leads", "result", "single", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        argument: Any,
        single: Callable[..., bool] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self.work = work
        self.argument = argument
        self.single = single  # the same work as one statement
        self.alone = alone
        self.result: Any = None
        self.error: Exception | None = None
        self.leads = False
        self.caller = 0  # the thread that waits
        self.gate = threading.Lock()
        self.gate.acquire()


class WriteQueue:
    """Owned by one caller at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._owned = False
        self._owner = 0  # the thread that owns the queue
        self._queue: deque[Ticket] = deque()
        self.crowded = False  #: True once a caller had to wait

    def try_acquire(self) -> bool:
        """Acquire the queue if it is free."""
        with self._guard:
            me = threading.get_ident()
            if self._owned and not self._still_owned_by(me):
                return False
            self._owner, self._owned = me, True
            return True

    def wait(self, ticket: Ticket, timeout: float = -1) -> bool:
        """Wait in the queue. True: the caller owns it now and must release it; False: a leader did the work, or it
        timed out."""
        with self._guard:
            ticket.caller = threading.get_ident()
            free = not self._owned or self._still_owned_by(ticket.caller)
            self._queue.append(ticket)
            if free:
                self._owner = ticket.caller
                self._owned = ticket.leads = True
                return True
            self.crowded = True
        arrived = False
        try:
            arrived = ticket.gate.acquire(timeout=timeout)
        finally:
            if not arrived:
                self._withdraw(ticket)
        return ticket.leads

    def batch(self) -> list[Ticket]:
        """The tickets that the leader takes: its own first, and all after it up to one that wants to be alone."""
        with self._guard:
            found = [self._queue.popleft()]
            while self._queue and not (self._queue[0].alone or found[0].alone):
                found.append(self._queue.popleft())
            return found

    def release(self) -> None:
        """Hand the queue to the first ticket, if there is one, or set it free."""
        with self._guard:
            if self._queue:
                following = self._queue[0]
                following.leads = True
                self._owner = following.caller
                following.gate.release()
            else:
                self._owned = False

    def _still_owned_by(self, me: int) -> bool:
        """True if an interrupt left this thread owning the queue; drops its stale tickets."""
        if self._owner != me:
            return False
        self._queue = deque(ticket for ticket in self._queue if ticket.caller != me)
        return True

    def _withdraw(self, ticket: Ticket) -> None:
        """Leave the queue, after a timeout or an interrupt."""
        with self._guard:
            if ticket in self._queue:  # if not, a leader is at work on it: too late
                self._queue.remove(ticket)
            leads, ticket.leads = ticket.leads, False
        if leads:
            self.release()
