"""Each command: its output, its effect on the store, its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backtrail

from .conftest import Run


def _thread(store_dir: Path, name: str = "talk") -> backtrail.Thread[Any]:
    return backtrail.open(store_dir / "backtrail.db").thread(name)


def test_threads_lists_newest_first_and_by_prefix(run: Run) -> None:
    assert [t["id"] for t in run("threads", "--json").data["threads"]] == ["other", "talk-fork", "talk"]
    assert [t["id"] for t in run("threads", "talk", "--json").data["threads"]] == ["talk-fork", "talk"]
    page = run("threads", "--limit", "1", "--json").data
    assert (len(page["threads"]), page["more"]) == (1, True)
    assert "talk-fork" in run("threads").out


def test_log_draws_the_branches_with_labels_tags_and_what_was_added(run: Run) -> None:
    lines = run("log", "talk").out.splitlines()
    assert [line[:3].rstrip() for line in lines] == ["◉", "●", "│ ○", "├─╯", "●", "●"]
    assert "[built]" in lines[0]
    assert "talk-fork" in lines[0]
    assert "mode=build" in lines[0]
    assert "#good" in lines[1]
    assert "+1 message" in lines[1]
    assert "assistant: a token bucket" in lines[1]
    assert "#bad" in lines[2]
    assert all("\x1b" not in line for line in lines)


def test_log_can_leave_out_what_rewinds_left_behind(run: Run) -> None:
    assert len(run("log", "talk", "--trail").out.splitlines()) == 4
    data = run("log", "talk", "--json").data
    assert len(data["checkpoints"]) == 5
    assert data["checkpoints"][0]["id"] == data["head"]
    assert data["forks"][0]["thread_id"] == "talk-fork"


def test_show_renders_the_conversation_and_the_rest_of_the_state(run: Run) -> None:
    shown = run("show", "talk").out
    assert "a token bucket" in shown
    assert "mode" in shown
    older = run("show", "talk", "@~2", "--json").data
    assert older["state"] == {"messages": [{"role": "user", "content": "build a rate limiter"}], "mode": "plan"}


def test_show_of_a_fork_names_the_fork_and_who_wrote_what_it_inherited(run: Run, store_dir: Path) -> None:
    assert run("show", "talk-fork", "2").out.splitlines()[0].startswith("talk-fork  step 2")
    assert run("show", "talk-fork", "2").out.splitlines()[0].endswith("(written by talk)")
    with backtrail.open(store_dir / "backtrail.db") as store:
        store.thread("talk-fork").update({"mode": "think"})
    assert "written by" not in run("show", "talk-fork").out


def test_show_folds_early_messages_and_long_tool_results(run: Run, store_dir: Path) -> None:
    thread = _thread(store_dir, "long")
    thread.append("messages", [{"role": "user", "content": f"number {i}"} for i in range(80)])
    thread.append("messages", [{"role": "tool", "name": "run", "content": "\n".join(f"line {i}" for i in range(50))}])
    folded = run("show", "long").out
    assert "31 earlier messages" in folded
    assert "47 more lines" in folded
    whole = run("show", "long", "--full").out
    assert "number 0" in whole
    assert "line 49" in whole


def test_diff_shows_what_changed_and_can_say_so_by_its_exit_code(run: Run) -> None:
    assert "mode" in run("diff", "talk").out
    data = run("diff", "talk", "start", "built", "--json").data
    assert {c["path"]: c["kind"] for c in data["changes"]} == {
        "messages[0]": "added",
        "messages[1]": "added",
        "mode": "changed",
    }
    assert run("diff", "talk", "@", "@", "--exit-code").code == 0
    assert run("diff", "talk", "--exit-code").code == 1


def test_find_looks_at_labels_tags_custom_fields_and_texts(run: Run) -> None:
    assert [f["checkpoint"]["step"] for f in run("find", "--tag", "bad", "--json").data["found"]] == [3]
    assert len(run("find", "--label", "start", "--json").data["found"]) == 1
    assert len(run("find", "--custom", "run=7", "--json").data["found"]) == 1
    found = run("find", "--text", "TOKEN bucket", "--json").data["found"]
    assert {(f["checkpoint"]["thread_id"], f["message"]) for f in found} == {("talk", 2)}
    assert run("find", "--tag", "nothing").code == 3
    assert run("find").code == 2


def test_fork_makes_a_thread_at_the_named_checkpoint(run: Run, store_dir: Path) -> None:
    data = run("fork", "talk", "start", "--to", "again", "--json").data
    assert (data["thread"], data["step"]) == ("again", 1)
    assert _thread(store_dir, "again").load() == {"messages": [], "mode": "plan"}
    assert run("fork", "talk", "--to", "again").code == 4


def test_rewind_asks_first_shows_what_it_would_do_and_can_be_undone(run: Run, store_dir: Path) -> None:
    planned = run("rewind", "talk", "start", "--dry-run")
    assert "would rewind talk to step 1: leave behind 3 checkpoints" in planned.out
    refused = run("rewind", "talk", "start")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert _thread(store_dir).step == 4
    assert run("rewind", "talk", "start", "--yes", "--json").data["done"] is True
    assert _thread(store_dir).step == 1
    assert run("undo", "talk").code == 0
    assert _thread(store_dir).step == 4


def test_label_and_tag_annotate_a_checkpoint(run: Run, store_dir: Path) -> None:
    assert run("label", "talk", "shipped").code == 0
    assert run("tag", "talk", "a", "b", "--at", "shipped").out == "step 4: #a #b\n"
    assert run("tag", "talk", "a", "--remove").out == "step 4: #b\n"
    head = _thread(store_dir).head
    assert head is not None
    assert (head.label, head.tags) == ("shipped", ("b",))
    assert run("label", "talk", "--remove").code == 0
    assert run("label", "talk").code == 2


def test_rm_deletes_only_with_yes(run: Run, store_dir: Path) -> None:
    assert run("rm", "other").code == 2
    assert run("rm", "other", "-n").out == "would delete other: 1 checkpoint\n"
    assert run("rm", "other", "nobody", "-y").code == 3
    assert _thread(store_dir, "other").exists()
    assert run("rm", "other", "-y").code == 0
    assert not _thread(store_dir, "other").exists()
    assert run("rm", "talk", "--at", "3", "-y").code == 0
    assert [c.step for c in _thread(store_dir).history()] == [1, 2, 4]


def test_rm_of_a_fork_counts_only_its_own_checkpoints(run: Run, store_dir: Path) -> None:
    assert run("fork", "talk", "3", "--to", "talk-2").code == 0
    assert run("rm", "talk-2", "-n").out == "would delete talk-2: 0 checkpoints\n"
    _thread(store_dir, "talk-2").append("messages", [{"role": "user", "content": "hello"}])
    assert run("rm", "talk-2", "talk", "-n").out == "would delete talk-2, talk: 6 checkpoints\n"


def test_export_writes_every_format_to_stdout_or_a_file(run: Run, store_dir: Path) -> None:
    assert json.loads(run("export", "talk", "--format", "json").out)["state"]["mode"] == "build"
    assert json.loads(run("export", "talk").out.splitlines()[-1])["content"] == "a token bucket"
    assert run("export", "talk", "-o", "talk.md").code == 0
    assert "a token bucket" in (store_dir / "talk.md").read_text()


def test_import_reads_an_export_back_once(run: Run, store_dir: Path) -> None:
    assert run("export", "talk", "-o", "talk.jsonl").code == 0
    first = run("import", "talk.jsonl", "-s", "fresh.db", "--json").data
    assert [line["id"] for line in first["imported"]] == ["talk"]
    assert len(run("import", "talk.jsonl", "-s", "fresh.db", "--json").data["unchanged"]) == 1
    assert "a token bucket" in run("show", "talk", "-s", "fresh.db").out
    (store_dir / "junk.json").write_text("no conversation")
    assert run("import", "junk.json").code == 1


def test_copy_copies_everything_once(run: Run, store_dir: Path) -> None:
    assert run("copy", "second.db", "--json").data["threads"] == 3
    assert run("log", "talk", "-s", "second.db").out.count("●") == run("log", "talk").out.count("●")
    assert run("copy", "second.db", "--json").data["rows"] == 0


def test_sync_makes_two_stores_equal(run: Run, store_dir: Path) -> None:
    assert run("copy", "second.db").code == 0
    with backtrail.open(store_dir / "second.db") as second:
        second.thread("only there").save({"n": 1})
    with backtrail.open(store_dir / "backtrail.db") as first:
        first.thread("talk").annotate(2, label="said here")
    synced = run("sync", "backtrail.db", "second.db", "--json").data
    assert synced["diverged"] == {}
    assert "said here" in run("log", "talk", "-s", "second.db").out
    assert "only there" in run("threads").out
    assert run("sync", "backtrail.db", "second.db", "--json").data["records"] == 0


def test_prune_asks_first_and_keeps_labelled_checkpoints(run: Run, store_dir: Path) -> None:
    assert run("prune").code == 2
    assert run("prune", "-n", "--json").data["checkpoints"] == 0
    by_url = ("-s", "sqlite:backtrail.db?retention=keep_last=1,keep_labelled=false,undo_window=0s")
    assert run("prune", "-n", "--json", *by_url).data["checkpoints"] > 0
    assert run("prune", "--max-age", "soon").code == 2
    planned = run("prune", "--keep-last", "1", "--undo-window", "0s", "-n", "--json").data
    assert planned["dry_run"] is True
    assert planned["checkpoints"] > 0
    assert run("prune", "--keep-last", "1").code == 2
    assert len(_thread(store_dir).history(all=True)) == 5
    assert run("prune", "--keep-last", "1", "--undo-window", "0s", "-y").code == 0
    assert [c.label for c in _thread(store_dir).history(all=True)] == ["start", "built"]


def test_compact_and_verify_look_after_the_store(run: Run, store_dir: Path) -> None:
    assert run("compact", "--json").data["bytes_after"] > 0
    assert run("verify", "--json").data["ok"] is True
    assert "all sound" in run("verify").out


def _damage(store_dir: Path, text: bytes) -> None:
    """Flip one bit of the store where `text` stands."""
    data = bytearray((store_dir / "backtrail.db").read_bytes())
    at = data.find(text)
    assert at > 0
    data[at] ^= 1
    for file in store_dir.glob("backtrail.db*"):
        file.unlink()
    (store_dir / "backtrail.db").write_bytes(data)


def test_a_damaged_checkpoint_does_not_hide_the_others(run: Run, store_dir: Path) -> None:
    _damage(store_dir, b"a token bucket")
    shown = run("log", "talk")
    assert shown.code == 0
    assert "damaged" in shown.out
    assert "build a rate limiter" in shown.out
    assert run("show", "talk").code == 5
    assert run("show", "talk", "@~2").code == 0


def test_verify_finds_damage_and_sets_it_aside_with_repair(run: Run, store_dir: Path) -> None:
    _damage(store_dir, b"a token bucket")
    found = run("verify", "--json")
    assert (found.code, found.data["ok"]) == (5, False)
    assert run("verify", "--repair").code == 2
    assert run("verify", "--repair", "--yes").code == 0
    assert run("verify").code == 0


def test_an_encrypted_store_opens_with_its_key_and_gets_a_new_one(run: Run, store_dir: Path) -> None:
    old, new = "00" * 32, "11" * 32
    with backtrail.open(store_dir / "sealed.db", key=old) as store:
        store.thread("secret").save({"n": 1})
    (store_dir / "new.key").write_text(new + "\n")
    assert run("threads", "-s", "sealed.db").code != 0
    assert "secret" in run("threads", "-s", "sealed.db", env={"BACKTRAIL_KEY": old}).out
    assert run("rekey", "new.key", "-s", "sealed.db", "-y", env={"BACKTRAIL_KEY": old}).code == 0
    assert "secret" in run("threads", "-s", "sealed.db", env={"BACKTRAIL_KEY": new}).out
    assert run("threads", "-s", "sealed.db", env={"BACKTRAIL_KEY": old}).code != 0


@pytest.fixture
def project(store_dir: Path) -> Path:
    """The directory `project` with one file."""
    project = store_dir / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    return project


def test_files_are_snapshotted_compared_and_restored(run: Run, project: Path) -> None:
    assert run("files", "snapshot", "-C", "project", "--label", "before", "--json").data["files"] == 1
    (project / "a.txt").write_text("two\n")
    (project / "b.txt").write_text("new\n")
    assert "a.txt" in run("files", "status", "-C", "project").out
    shown = run("files", "diff", "-C", "project").out
    assert "-one" in shown
    assert "+two" in shown
    (project / ".gitignore").write_text("*.log\n")
    (project / "x.log").write_text("ignored\n")
    planned = run("files", "restore", "before", "-C", "project", "--dry-run")
    assert planned.out.splitlines() == [
        "- .gitignore   (in no snapshot yet)",
        "~ a.txt   (changed since the last snapshot)",
        "- b.txt   (in no snapshot yet)",
        "= x.log   (kept: ignored by rule)",
        "would change 1 file, remove 2 files, keep 1",
    ]
    kept = run("files", "restore", "before", "-C", "project", "--dry-run", "--keep-untracked", "--json").data
    assert [change["path"] for change in kept["changes"]] == ["a.txt"]
    assert [one["path"] for one in kept["kept"]] == [".gitignore", "b.txt", "x.log"]
    assert run("files", "restore", "before", "-C", "project").code == 2
    assert (project / "a.txt").read_text() == "two\n"
    done = run("files", "restore", "before", "-C", "project", "-y").out
    assert done.splitlines() == [*planned.out.splitlines()[:-1], "changed 1 file, removed 2 files, kept 1"]
    assert (project / "a.txt").read_text() == "one\n"
    assert not (project / "b.txt").exists()
    assert run("files", "undo", "-C", "project", "-y").code == 0
    assert (project / "a.txt").read_text() == "two\n"
    assert (project / "b.txt").read_text() == "new\n"
    assert "before" in run("files", "list", "-C", "project").out
    assert run("files", "diff", "@~9", "-C", "project").code == 3


def test_rewind_restores_the_files_too(run: Run, store_dir: Path, project: Path) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        workspace = store.workspace(project)
        store.thread("coder").save({"n": 1}, files=workspace)
        (project / "a.txt").write_text("two\n")
        store.thread("coder").save({"n": 2}, files=workspace, expect=store.thread("coder").head)
    compared = run("diff", "coder").out
    assert "~ n" in compared
    assert "+two" in compared
    assert [change["path"] for change in run("diff", "coder", "--json").data["files"]] == ["a.txt"]
    (project / "b.txt").write_text("new\n")
    planned = run("rewind", "coder", "1", "--files", "-n", "--json").data
    assert [(change["path"], change["kind"]) for change in planned["files"]] == [
        ("a.txt", "changed"),
        ("b.txt", "removed"),
    ]
    keeping = run("rewind", "coder", "1", "--files", "-n", "--keep-untracked")
    assert "= b.txt   (kept: in no snapshot)" in keeping.out
    assert run("rewind", "coder", "1", "--files", "--prune", "-y").code == 2
    assert "changed 1 file, removed 1 file" in run("rewind", "coder", "1", "--files", "-y").out
    assert (project / "a.txt").read_text() == "one\n"
    assert not (project / "b.txt").exists()
    assert _thread(store_dir, "coder").step == 1
    undone = run("undo", "coder", "--files", "--json").data
    assert [change["path"] for change in undone["files"]] == ["a.txt", "b.txt"]
    assert (project / "b.txt").exists()
    assert ((project / "a.txt").read_text(), _thread(store_dir, "coder").step) == ("two\n", 2)
    assert run("rewind", "talk", "start", "--files", "-y").code == 3


def test_a_store_from_elsewhere_chooses_no_directory(run: Run, store_dir: Path, project: Path) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        store.thread("coder").save({"n": 1}, files=store.workspace(project))
        store.thread("coder").save({"n": 2})
    (store_dir / "backtrail.db").rename(store_dir / "foreign.db")
    (project / "a.txt").write_text("two\n")
    (store_dir / "mine").mkdir()
    for options in (["-n"], ["-y"], ["-n", "--json"]):
        refused = run("rewind", "coder", "1", "--files", *options, "-s", "foreign.db")
        assert refused.code == 3
        assert "A store never chooses a directory: name it, with --root DIRECTORY" in refused.out + refused.err
    assert run("diff", "coder", "-s", "foreign.db").code == 0
    assert run("rewind", "coder", "1", "--files", "--root", "mine", "-n", "-s", "foreign.db").code == 0
    assert (list((store_dir / "mine").iterdir()), (project / "a.txt").read_text()) == ([], "two\n")
    assert run("rewind", "coder", "1", "--files", "--root", "mine", "-y", "-s", "foreign.db").code == 0
    assert (store_dir / "mine" / "a.txt").read_text() == "one\n"
    assert run("undo", "coder", "--files", "-s", "foreign.db").code == 0
    assert (list((store_dir / "mine").iterdir()), (project / "a.txt").read_text()) == ([], "two\n")


def test_undo_with_files_moves_both_or_neither(run: Run, store_dir: Path, project: Path) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        workspace = store.workspace(project)
        first = store.thread("coder").save({"n": 1}, files=workspace)
        (project / "a.txt").write_text("two\n")
        workspace.restore(first)
    assert run("undo", "coder", "--files").code == 3  # its head cannot go back: it has one checkpoint
    assert (project / "a.txt").read_text() == "one\n"
    assert run("files", "undo", "-C", "project", "-y").code == 0
    with backtrail.open(store_dir / "backtrail.db") as store:
        store.thread("coder").save({"n": 2}, files=store.workspace(project))
    assert run("undo", "coder", "--files").code == 3  # no restore is left to take back
    assert _thread(store_dir, "coder").step == 2


def _fail(store: backtrail.Store) -> None:
    with store.run("job", task="nightly") as job:
        job.checkpoint(messages=[], input_tokens=12)
        raise RuntimeError("the job dies")


def test_sessions_and_runs_list_their_kind(run: Run, store_dir: Path) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        store.session("chat").add("user", "hello")
        with pytest.raises(RuntimeError):
            _fail(store)
    [chat] = run("sessions", "--json").data["sessions"]
    assert (chat["id"], chat["messages"], chat["user_turns"]) == ("chat", 1, 1)
    [waiting] = run("runs", "--json").data["runs"]
    assert (waiting["id"], waiting["task"], waiting["input_tokens"]) == ("job", "nightly", 12)
    assert "nightly" in run("runs").out
    assert "chat" in run("sessions").out


def test_stats_bench_and_doctor_print_their_results(run: Run, store_dir: Path) -> None:
    assert run("stats", "--json").data["threads"] == 3
    figures = run("bench", "--turns", "20", "--json").data["milliseconds"]
    assert figures["append a turn"][0] > 0
    assert run("stats", "--json").data["threads"] == 3
    assert run("doctor", "--json").data["healthy"] is True


def test_a_store_whose_threads_are_all_in_namespaces_says_so(run: Run, store_dir: Path) -> None:
    with backtrail.open(store_dir / "namespaced.db", namespace="acme") as store:
        store.thread("a").save({})
    assert run("threads", "-s", "namespaced.db").out == (
        "no threads here; there are namespaces, for ?namespace=… in the URL: acme\n"
    )
    assert "a " in run("threads", "-s", "sqlite:namespaced.db?namespace=acme").out
    assert run("stats", "-s", "namespaced.db", "--json").data["namespaces"] == ["acme"]
    assert "acme" in run("stats", "-s", "namespaced.db").out
    assert "namespaces" not in run("stats").out
    assert run("threads", "-s", "sqlite:namespaced.db?namespace=empty").out == "no threads yet\n"
    assert run("stats", "-s", "sqlite:namespaced.db?namespace=acme", "--json").data["namespaces"] == []


def test_doctor_looks_at_both_sides_of_a_mirror(run: Run, store_dir: Path) -> None:
    found = run("doctor", "-s", "sqlite:///backtrail.db?replica=copy.db", "--json").data["findings"]
    verdicts = {finding["what"]: finding["verdict"] for finding in found}
    assert (verdicts["primary"], verdicts["replica"]) == ("ok", "ok")
    assert verdicts["lag"] in ("ok", "hint")


def test_doctor_reports_the_records_in_a_spool(run: Run, store_dir: Path) -> None:
    found = run("doctor", "-s", "sqlite:///backtrail.db?replica=copy.db&spool=kept", "--json").data["findings"]
    assert {one["what"]: one["found"] for one in found}["spool"] == "empty"


def test_doctor_says_what_is_wrong_and_what_to_do(run: Run, store_dir: Path) -> None:
    gone = run("doctor", "-s", "nowhere.db")
    assert gone.code == 1
    assert "-s or BACKTRAIL_STORE" in gone.out
    (store_dir / "broken.db").write_bytes(b"this is no database, whatever its name says" * 100)
    broken = run("doctor", "-s", "broken.db", "--json")
    assert broken.code == 1
    assert broken.data["healthy"] is False
    (store_dir / "backtrail.db").chmod(0o644)
    assert "chmod 600" in run("doctor").out


@pytest.mark.parametrize(("name", "step"), [("-1", 4), ("-2", 3), ("@~3", 1), ("start", 1), ("start~0", 1)])
def test_every_name_of_a_checkpoint_works_on_the_command_line(run: Run, name: str, step: int) -> None:
    assert run("show", "talk", name, "--json").data["checkpoint"]["step"] == step
    assert run("show", "talk", "--full", name, "-m", "2", "--json").data["checkpoint"]["step"] == step
    assert run("diff", "talk", name, "-1", "--json").data["a"]["step"] == step
    assert run("label", "talk", "here", "--at", name, "--json").data["checkpoint"]["step"] == step


def test_a_number_that_belongs_to_an_option_is_not_taken_for_a_step(run: Run) -> None:
    ended = run("show", "talk", "-m", "-2")
    assert (ended.code, "-2" in ended.err, "@~" in ended.err) == (2, True, False)


def test_messages_are_numbered_from_one_and_keep_their_numbers(run: Run, store_dir: Path) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        session = store.session("chat")
        session.extend([{"role": "user", "content": f"word {n}"} for n in range(1, 6)])
        session.truncate(keep_last=2)
    assert ("#4" in run("show", "chat").out, "#3" in run("show", "chat").out) == (True, False)
    assert "message #5" in run("find", "chat", "--text", "word 5").out
    assert run("find", "chat", "--text", "word 5", "--json").data["found"][0]["message"] == 5
    assert "## user · 5" in run("export", "chat", "--format", "markdown").out


def test_diff_compares_two_threads(run: Run, store_dir: Path) -> None:
    fork = _thread(store_dir, "talk-fork")
    fork.append("messages", [{"role": "user", "content": "of the fork"}])
    between = run("diff", "talk", "talk-fork", "--json").data
    assert (between["a"]["thread_id"], between["b"]["thread_id"]) == ("talk", "talk-fork")
    assert [(c["kind"], c["path"]) for c in between["changes"]] == [("added", "messages[2]")]
    assert "talk step 4 → talk-fork step 5" in run("diff", "talk", "talk-fork").out
    assert run("diff", "talk-fork", "talk", "--since-fork", "--json").data["changes"] == []
    assert run("diff", "talk", "start", "talk-fork@~1", "--json").data["b"]["step"] == 4
    assert run("diff", "talk", "talk-fork@2", "@", "--json").data["a"]["step"] == 2
    unrelated = run("diff", "talk", "other")
    assert (unrelated.code, "n" in unrelated.out) == (0, True)
    assert run("diff", "talk", "other", "--since-fork").code == 3
    assert "did you mean" in run("diff", "tolk", "other").err
    assert run("diff", "talk", "nobody").code == 3
    assert run("diff", "talk", "nobody@~1").code == 3


def test_redo_does_again_what_undo_took_back(run: Run) -> None:
    assert run("undo", "talk", "--json").data["head"]["step"] == 3
    assert run("redo", "talk", "--json").data["head"]["step"] == 4
    ended = run("redo", "talk")
    assert (ended.code, "nothing to redo" in ended.err) == (3, True)


def test_runs_are_submitted_worked_on_asked_about_and_read(tmp_path: Path, run: Run, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some_agents.py").write_text(
        "def pay(run, input):\n"
        "    plan = run.step('plan', dict, input)\n"
        "    return run.ask('ok?', 'Pay?', schema=bool, about=plan)\n"
        "tasks = {'pay': pay}\n"
    )
    assert run("submit", "pay", '{"amount": 3}', "--id", "p").out == "p is ready\n"
    assert run("work", "some_agents:tasks", "--drain", "--json").data == {"runs": 1}
    assert [row["status"] for row in run("runs", "--json").data["runs"]] == ["waiting"]
    [question] = run("pending", "--json").data["pending"]
    assert (question["name"], question["about"], question["schema"]) == ("ok?", {"amount": 3}, {"type": "boolean"})
    assert "Pay?" in run("pending").out
    assert "does not fit" in run("answer", "p", "ok?", "perhaps").err
    assert run("answer", "p", "ok?", "true", "--by", "ada", "--digest", question["digest"]).code == 0
    assert "answered by ada" in run("answer", "p", "ok?", "false").err
    assert run("work", "some_agents:pay", "--drain").code == 0
    assert run("runs").out == "no run is waiting to be resumed\n"
    assert [row["id"] for row in run("runs", "--all", "--json").data["runs"]] == ["p"]
    assert "finished" in run("runs", "--status", "finished").out
    told = run("steps", "p", "--json").data
    assert (told["status"], told["result"], [step["name"] for step in told["steps"]]) == (
        "finished",
        True,
        ["plan", "ok?"],
    )
    assert "plan" in run("steps", "p").out
    assert run("work", "some_agents").code != 0
    assert run("work", "some_agents:nothing").code != 0


def test_steps_show_what_their_models_used(store_dir: Path, run: Run) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        with store.run("plain") as plain:
            plain.step("look up the price", lambda: {"cost": 80})
        with store.run("paid") as paid:
            paid.step("ask", lambda: {"usage": {"input_tokens": 1900, "output_tokens": 40}, "cost": 0.02})
    assert "tokens" not in run("steps", "plain").out
    assert "1,900 + 40 tokens, $0.0200" in run("steps", "paid").out
