"""Errors of the command line: one line each, with advice that names commands and not Python calls."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import backtrail
from backtrail.render import error_hints

from .conftest import Run, run_in_shell

SOURCES = Path(backtrail.__file__).parent


def test_every_python_hint_that_is_reworded_occurs_in_the_library() -> None:
    sources = "".join(
        re.sub(r'"\s*\n\s*f?"', "", path.read_text())
        for path in SOURCES.rglob("*.py")
        if path.name != "error_hints.py" and "cli" not in path.parts
    ).replace('MissingExtra("store.workspace()"', "store.workspace() needs")
    for hint in error_hints._COMMANDS:
        assert hint in sources, hint


@pytest.mark.parametrize("args", [("log", "tlak"), ("show", "tlak", "2"), ("rm", "tlak", "-y"), ("undo", "tlak")])
def test_a_misspelt_thread_gets_a_hint_and_no_python(run: Run, args: tuple[str, ...]) -> None:
    ended = run(*args)
    assert ended.code == 3
    assert "`backtrail threads` lists those that there are; did you mean 'talk'?" in ended.err
    assert "store." not in ended.err


def test_a_store_that_is_not_there_says_how_to_name_one(run: Run) -> None:
    assert "name one with -s or BACKTRAIL_STORE" in run("threads", "-s", "typo.db").err


def test_a_store_that_cannot_be_reached_has_the_public_name_of_its_error(run: Run) -> None:
    ended = run("threads", "-s", "redis://127.0.0.1:1/0?retries=0", "--json")
    assert json.loads(ended.out)["error"]["type"] == "Unavailable"


def test_rewind_needs_a_checkpoint_to_go_to(run: Run) -> None:
    ended = run("rewind", "talk", "--yes")
    assert (ended.code, "Missing argument 'AT'" in ended.err) == (2, True)


def test_only_a_command_that_has_a_dry_run_advises_one(run: Run) -> None:
    assert "--dry-run" in run("rm", "talk").err
    assert "--dry-run" not in run("verify", "--repair").err


def test_a_file_that_cannot_be_written_is_named(run: Run, store_dir: Path) -> None:
    ended = run("export", "talk", "-o", "no/such/place.md")
    assert "'no/such/place.md' cannot be written: No such file or directory" in ended.err
    assert "Errno" not in ended.err


@pytest.mark.parametrize("args", ["threads", "threads --json", "export talk", "log talk", "show nobody --json"])
def test_a_full_disk_behind_stdout_is_one_line(store_dir: Path, args: str) -> None:
    ended = run_in_shell(store_dir, f"{args} > /dev/full")
    assert ended.code != 0
    assert "No space left on device" in ended.err
    assert "Traceback" not in ended.err


def test_a_thread_without_messages_is_not_exported_as_an_empty_conversation(run: Run) -> None:
    ended = run("export", "other")
    assert ended.code == 2
    assert "no list of messages" in ended.err
    assert "`backtrail export --format json` writes its state" in ended.err
    assert json.loads(run("export", "other", "--format", "json").out)["state"] == {"n": 1}


KEY, OTHER = "00" * 32, "11" * 32


@pytest.fixture
def sealed(store_dir: Path) -> Path:
    with backtrail.open(store_dir / "sealed.db", key=KEY) as store:
        store.thread("secret").save({"text": "the name of the thread is Ariadne"})
    return store_dir


def test_a_copy_of_an_encrypted_store_has_its_key(run: Run, sealed: Path) -> None:
    assert run("copy", "copy.db", "-s", "sealed.db", env={"BACKTRAIL_KEY": KEY}).code == 0
    assert b"Ariadne" not in (sealed / "copy.db").read_bytes()
    assert run("threads", "-s", "copy.db").code == 5
    assert "secret" in run("threads", "-s", "copy.db", env={"BACKTRAIL_KEY": KEY}).out


def test_a_copy_can_have_another_key_or_none(run: Run, sealed: Path) -> None:
    (sealed / "other.key").write_text(OTHER + "\n")
    assert run("copy", "o.db", "--key", "other.key", "-s", "sealed.db", env={"BACKTRAIL_KEY": KEY}).code == 0
    assert "secret" in run("threads", "-s", "o.db", env={"BACKTRAIL_KEY": OTHER}).out
    assert run("copy", "plain.db", "--no-key", "-s", "sealed.db", env={"BACKTRAIL_KEY": KEY}).code == 0
    assert "secret" in run("threads", "-s", "plain.db").out
    assert run("copy", "now-sealed.db", "--key", "other.key").code == 0
    assert "talk" in run("threads", "-s", "now-sealed.db", env={"BACKTRAIL_KEY": OTHER}).out
    assert run("copy", "x.db", "--no-key", "--key", "other.key").code == 2


def test_a_store_is_not_copied_or_synced_to_itself(run: Run) -> None:
    assert "is the store itself" in run("copy", "./backtrail.db").err
    for same in ("sqlite:backtrail.db?durability=normal", "sqlite:///backtrail.db", "sqlite://backtrail.db"):
        assert "is the store itself" in run("copy", same).err
    assert "are one store" in run("sync", "backtrail.db", "./backtrail.db").err


def test_a_missing_or_invalid_key_is_reported_with_the_options_of_the_command_line(run: Run, sealed: Path) -> None:
    assert "BACKTRAIL_KEY" in run("threads", "-s", "sealed.db").err
    assert "openssl rand -hex 32" in run("threads", "-s", "sealed.db", env={"BACKTRAIL_KEY": "hush"}).err
    assert "backtrail copy TARGET --key FILE" in run("threads", env={"BACKTRAIL_KEY": KEY}).err
    (sealed / "raw.key").write_bytes(bytes(range(128, 160)))
    assert "holds no key" in run("rekey", "raw.key", "-s", "sealed.db", "-y", env={"BACKTRAIL_KEY": KEY}).err


def test_doctor_gives_the_advice_that_fits_the_error(run: Run, sealed: Path) -> None:
    assert "BACKTRAIL_KEY" in run("doctor", "-s", "sealed.db").out
    (sealed / "broken.db").write_bytes((sealed / "backtrail.db").read_bytes()[:20_000])
    assert "backtrail verify" in run("doctor", "-s", "broken.db").out
    (sealed / "text.db").write_text("no store")
    assert "name the right store" in run("doctor", "-s", "text.db").out


@pytest.mark.parametrize("name", ["@", "@~2", "~", "12"])
def test_a_label_that_could_never_be_found_is_refused(run: Run, name: str) -> None:
    ended = run("label", "talk", name)
    assert (ended.code, "choose another label" in ended.err) == (2, True)


@pytest.mark.parametrize("name", ["v1~2", "2026-11-15", "deadbeef", "12345678", "step 2"])
def test_any_other_label_is_found_again(run: Run, name: str) -> None:
    assert run("label", "talk", name, "--at", "2").code == 0
    assert run("show", "talk", name, "--json").data["checkpoint"]["step"] == 2


def test_an_empty_ref_is_not_the_head(run: Run) -> None:
    assert "use @ for the head" in run("show", "talk", "").err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("threads", "x"), "no thread starts with 'x'"),
        (("threads", "--kind", "workspace"), "no threads of kind 'workspace' yet"),
        (("sessions",), "no sessions yet"),
        (("sessions", "x"), "no session starts with 'x'"),
        (("runs",), "no run is waiting to be resumed"),
        (("runs", "x"), "no run starts with 'x'"),
    ],
)
def test_an_empty_listing_names_what_was_searched(run: Run, args: tuple[str, ...], message: str) -> None:
    assert run(*args).out == message + "\n"


def test_find_refuses_text_together_with_other_conditions(run: Run) -> None:
    assert run("find", "--text", "bucket", "--tag", "bad").code == 2


def test_a_snapshot_is_found_by_the_start_of_its_id_and_a_wrong_one_is_refused(run: Run, store_dir: Path) -> None:
    (store_dir / "project").mkdir()
    assert "backtrail files snapshot" in run("files", "list", "-C", "project").out
    taken = run("files", "snapshot", "-C", "project", "--json").data
    assert taken["created_at"].endswith("+00:00")
    assert run("files", "diff", taken["id"][:18], "-C", "project").code == 0
    for wrong in ("nope", "zzzzzzzz", ""):
        ended = run("files", "diff", wrong, "-C", "project")
        assert (ended.code, "`backtrail files list` lists them" in ended.err) == (3, True)


def test_json_may_stand_before_the_command(run: Run) -> None:
    assert run("--json", "threads").data == run("threads", "--json").data


@pytest.mark.linux
def test_names_that_are_not_utf8_are_printed_as_json_and_as_text(run: Run, store_dir: Path) -> None:
    project = store_dir / "project"
    project.mkdir()
    odd = project / os.fsdecode(b"bad\xff.txt")
    assert run("files", "snapshot", "-C", "project").code == 0
    odd.write_text("x")
    [change] = run("files", "status", "-C", "project", "--json").data["changes"]
    assert os.fsencode(change["path"]) == b"bad\xff.txt"
    assert json.loads(run("threads", "-s", "bad\udcff.db", "--json").out)["error"]["exit_code"] == 3
    assert "bad\N{REPLACEMENT CHARACTER}.db" in run("threads", "-s", "bad\udcff.db").err


def test_a_thread_written_as_a_run_and_as_a_session_does_not_break_the_lists(run: Run, store_dir: Path) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        store.run("job", task="nightly").checkpoint(messages=[])
        store.run("other-job").checkpoint()
        store.session("job").add("user", "hi")
    assert [(one["id"], one["task"]) for one in run("runs", "--json").data["runs"]] == [
        ("job", "nightly"),
        ("other-job", ""),
    ]
