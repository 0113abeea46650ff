"""Prefetching: an iterator runs in a thread of its own, while its reader works on the items before.

The size of the items that wait is limited, and the thread pauses while the limit is reached: memory is bounded however
slow the reader is. An error in the thread is raised to the reader, after all items that came before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """The items of `source`, made in a thread. Use it in a `with` block: when that ends, so has the thread."""

    def __init__(self, source: Iterator[T], size: Callable[[T], int], max_size: int) -> None:
        self._source = source
        self._size = size
        self._max_size = max_size
        self._waiting: deque[tuple[T, int]] = deque()
        self._waiting_size = 0
        self._done = self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="backtrail-prefetch", daemon=True)

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
            item, size = self._waiting.popleft()
            self._waiting_size -= size
            self._changed.notify_all()
            return item

    @property
    def would_block(self) -> bool:
        """True if the next item is not ready yet."""
        return not self._waiting and not self._done

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._source:
                if not self._put(item, self._size(item)):
                    break
        except BaseException as raised:  # noqa: BLE001  # whatever it is, the reader gets it
            error = raised
        finally:
            close = getattr(self._source, "close", None)
            if close is not None:
                close()
            with self._changed:
                self._done, self._error = True, error
                self._changed.notify_all()

    def _put(self, item: T, size: int) -> bool:
        """Hand an item over as soon as there is room for it; False if the reader has left."""
        with self._changed:
            while self._waiting and self._waiting_size + size > self._max_size and not self._closed:
                self._changed.wait()
            self._waiting.append((item, size))
            self._waiting_size += size
            self._changed.notify_all()
            return not self._closed
