"""Work done ahead: an iterator that runs in a thread of its own, while its reader writes down what came before.

What waits to be taken is weighed, and the thread rests while it is too much: however slow the reader is, memory is
bounded. An error in the thread is raised to the reader, after all that came before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """The items of `source`, made in a thread. To be used in a `with` block: at its end nobody is at work any more."""

    def __init__(self, source: Iterator[T], weigh: Callable[[T], int], most: int) -> None:
        self._source = source
        self._weigh = weigh
        self._most = most
        self._waiting: deque[tuple[T, int]] = deque()
        self._weight = 0
        self._done = self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="backtrail-ahead", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            while not self._waiting:
                if self._done:
                    if self._error is not None:
                        raise self._error
                    raise StopIteration
                self._changed.wait()
            item, weight = self._waiting.popleft()
            self._weight -= weight
            self._changed.notify_all()
            return item

    @property
    def behind(self) -> bool:
        """Whether whoever takes the next item has to wait for it."""
        return not self._waiting and not self._done

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._source:
                if not self._give(item, self._weigh(item)):
                    break
        except BaseException as raised:  # noqa: BLE001  # whatever it is, it is the reader's
            error = raised
        finally:
            close = getattr(self._source, "close", None)
            if close is not None:
                close()
            with self._changed:
                self._done, self._error = True, error
                self._changed.notify_all()

    def _give(self, item: T, weight: int) -> bool:
        """Hand an item over when there is room for it; False if nobody wants it any more."""
        with self._changed:
            while self._waiting and self._weight + weight > self._most and not self._closed:
                self._changed.wait()
            self._waiting.append((item, weight))
            self._weight += weight
            self._changed.notify_all()
            return not self._closed
