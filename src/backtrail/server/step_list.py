"""The history of a thread for the inspector: pages of a graph, the steps that a filter keeps, and the chart.

Checkpoints never change, so the change summary of each is cached. A request with a filter looks at a bounded number of
steps, and answers with what it found and where to go on: however long the history, none takes long.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from backtrail import Checkpoint, Outline, Store, Thread
from backtrail.lru import LRU
from backtrail.render.change_summary import ChangeSummary, summarize
from backtrail.render.graph import GraphRow
from backtrail.render.json_records import checkpoint_json, thread_json
from backtrail.render.step_filter import StepFilter
from backtrail.server import requests, responses
from backtrail.server.history_cache import HistoryCache
from backtrail.server.thread_listing import parse_moment

_CACHED_SUMMARIES = 20_000
_MOST_LOOKED_AT = 50_000  # steps of which one request looks at the label, the tags and the time
_MOST_READ = 300  # steps of which it reads the messages


class StepList:
    """Reads histories of one store."""

    def __init__(self, store: Store, histories: HistoryCache) -> None:
        self._store = store
        self._histories = histories
        self._lock = threading.Lock()  # around the cache: requests run in several threads
        self._summaries: LRU[tuple[str, str | None], ChangeSummary] = LRU(_CACHED_SUMMARIES)

    def page(self, request: requests.HistoryRequest) -> responses.HistoryResponse:
        """A page of the history as rows of a graph, newest first."""
        handle: Thread[Any] = self._store.thread(request.thread)
        with self._histories.read(request.thread, request.trail) as history:
            info, graph, layout = history.info, history.graph, history.layout
            index = graph.index(handle.get(request.at, salvage=True).id) if request.at is not None else None
            start = request.start if index is None else max(0, index - request.limit // 2)
            total, lanes, rows = len(graph), graph.lanes, graph.page(start, start + request.limit)
        outlines: dict[str, Outline] = {}
        return {
            "thread": thread_json(info),
            "layout": layout,
            "index": index,
            "total": total,
            "start": start,
            "lanes": lanes,
            "rows": [self._row(handle, row, outlines, graph.seconds(row.checkpoint)) for row in rows],
        }

    def filtered(self, request: requests.StepsRequest) -> responses.StepsResponse:
        """The steps that a filter keeps, newest first, without lines between them."""
        wanted = step_filter(request)
        handle: Thread[Any] = self._store.thread(request.thread)
        with self._histories.read(request.thread) as history:
            info, graph, layout = history.info, history.graph, history.layout
            total = len(graph)
            top = total if request.below is None else min(request.below, total)
            looked_at = graph.between(max(request.above, top - _MOST_LOOKED_AT), top)
            trail = {checkpoint.id for checkpoint in looked_at if graph.on_trail(checkpoint.id)}
        rows: list[responses.StepRowJson] = []
        outlines: dict[str, Outline] = {}
        place, read = top, 0
        for checkpoint in looked_at:
            if len(rows) == request.limit or read == _MOST_READ:
                break
            place -= 1
            if not wanted.marked(checkpoint):
                continue
            if wanted.reads:
                read += 1
                if not wanted.fits(handle, checkpoint, self._summary(handle, checkpoint, outlines)):
                    continue
            row = GraphRow(checkpoint, 0, (), (), False, checkpoint.id in trail)
            rows.append({**self._row(handle, row, outlines, graph.seconds(checkpoint)), "place": place})
        below = place if place > request.above else None
        return {"thread": thread_json(info), "layout": layout, "total": total, "below": below, "rows": rows}

    def sizes(self, request: requests.ThreadRequest) -> responses.SizesResponse:
        """The points of the chart."""
        with self._histories.read(request.thread) as history:
            chart = history.chart
            return {"steps": chart.steps, "written": chart.written, "size": chart.size, "points": chart.points()}

    def _summary(self, handle: Thread[Any], checkpoint: Checkpoint, outlines: dict[str, Outline]) -> ChangeSummary:
        key = (checkpoint.id, checkpoint.parent_id)  # when a checkpoint is deleted, the next one gets another parent
        with self._lock:
            change = self._summaries.get(key)
        if change is None:
            change = summarize(handle, checkpoint, outlines)
            with self._lock:
                self._summaries.put(key, change)
        return change

    def _row(
        self, handle: Thread[Any], row: GraphRow, outlines: dict[str, Outline], seconds: float | None
    ) -> responses.HistoryRowJson:
        change = self._summary(handle, row.checkpoint, outlines)
        return {
            **checkpoint_json(row.checkpoint),
            "lane": row.lane,
            "joins": list(row.joins),
            "through": list(row.through),
            "open": row.open,
            "on_trail": row.on_trail,
            "added": change.text,
            "preview": change.preview,
            "role": change.role,
            "failed": change.failed,
            "model": change.model,
            "tokens": msgspec.to_builtins(change.tokens),
            "cost": change.cost,
            "seconds": seconds,
        }


def step_filter(request: requests.FilteredRequest) -> StepFilter:
    """The filter that a request asks for."""
    return StepFilter(
        request.role,
        request.tool,
        request.failed,
        request.label,
        request.tag,
        parse_moment(request.since, "since"),
        parse_moment(request.until, "until"),
    )
