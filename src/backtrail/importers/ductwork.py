"""ductwork's run checkpoints: one JSON file per run."""

from __future__ import annotations

from backtrail.importers.model import BadFile, FileContent, ForeignThread, check_run

_RUN_FIELDS = {"iteration", "messages", "system_prompt", "input_tokens", "output_tokens"}


def recognises(content: FileContent) -> bool:
    return type(content.value) is dict and "run_id" in content.value and "iteration" in content.value


def read(content: FileContent) -> list[ForeignThread]:
    value = content.value
    if type(value) is not dict or type(value.get("run_id")) is not str or not value["run_id"]:
        raise BadFile("it has no run_id")
    fields = {name: item for name, item in value.items() if name in _RUN_FIELDS and item is not None}
    extra = {
        name: item for name, item in value.items() if name not in {*_RUN_FIELDS, "run_id", "task_name", "created_at"}
    }
    fields |= {"task": value.get("task_name") or "", "custom": extra}
    custom = {"created": value["created_at"]} if type(value.get("created_at")) is str else {}
    return [ForeignThread(value["run_id"], kind="run", fields=check_run(fields), custom=custom)]
