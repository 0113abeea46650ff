"""The suites: which tests of a framework run on backtrail's stores, and which cannot apply."""

from __future__ import annotations

from dataclasses import dataclass, field

APIS = ("blocking", "async")
_EVERY_SYNC = tuple(f"{engine}-blocking" for engine in ("memory", "sqlite", "jsonl", "redis", "postgres"))
# The suites construct a store before their event loop runs, which an AsyncStore over a server's client does not allow.
_ASYNC = tuple(f"{engine}-async" for engine in ("memory", "sqlite", "jsonl"))


@dataclass(frozen=True)
class Suite:
    """Tests of one framework."""

    name: str
    plugin: str  #: the module beside this one that puts backtrail's classes in
    package: str  #: whose source distribution has the tests
    tests: tuple[str, ...]  #: files, relative to it
    options: tuple[str, ...] = ()  #: more arguments for pytest
    cannot_apply: dict[str, str] = field(default_factory=dict)  #: node id -> why it is left out
    stores: tuple[str, ...] = _EVERY_SYNC + _ASYNC


_LOOKS_INTO_SQLITE = "looks into, breaks or locks the tables and connections of the SDK's own SQLite session"
_ONLY_SQLITE_SESSION = "the SDK checks a token before it pops only where the session is its own SQLiteSession"

SUITES = [
    Suite(
        name="claude",
        plugin="bind_claude",
        package="claude-agent-sdk",
        tests=(
            "tests/test_session_helpers_store.py",
            "tests/test_session_import.py",
            "tests/test_session_resume.py",
            "tests/test_session_store_anyio.py",
            "tests/test_session_store_conformance.py",
            "tests/test_session_summary.py",
            "tests/test_transcript_mirror.py",
        ),
    ),
    Suite(
        name="openai-agents",
        plugin="bind_openai_agents",
        package="openai-agents",
        tests=(
            "tests/memory/test_session.py",
            "tests/memory/test_session_limit.py",
            "tests/memory/test_compaction_model_visibility.py",
            "tests/memory/test_compaction_suffix.py",
            "tests/memory/test_openai_responses_compaction_session.py",
            "tests/extensions/memory/test_encrypt_session.py",
            "tests/deferred_session_writes",
        ),
        cannot_apply={
            **{
                f"tests/memory/test_session.py::test_sqlite_session_{test}": _LOOKS_INTO_SQLITE
                for test in (
                    "close_closes_worker_thread_connections",
                    "reaps_connections_from_exited_worker_threads",
                    "closes_retired_connections_before_the_next_allocation",
                    "keeps_connections_of_live_worker_threads",
                    "pop_item_skips_corrupt_most_recent",
                    "pop_item_returns_none_after_dropping_only_corrupt_rows",
                    "get_items_limit_skips_corrupt_newest_rows",
                    "get_items_session_settings_limit_skips_corrupt_rows",
                    "file_lock_is_shared_across_instances",
                    "failed_add_items_releases_write_lock",
                    "failed_clear_session_rolls_back",
                    "failed_pop_item_releases_write_lock",
                    "rollback_failure_evicts_connection",
                    "close_retries_quarantined_connection",
                    "post_commit_cancellation_propagates_after_known_outcome",
                )
            },
            "tests/memory/test_session.py::test_sqlite_session_closed_rejects_empty_add_items": (
                "a BacktrailSession is not closed: its store is, by whoever opened it"
            ),
            **{
                f"tests/memory/test_compaction_suffix.py::test_{test}": _LOOKS_INTO_SQLITE
                for test in (
                    "suffix_transaction_rolls_back_failed_insert[sqlite]",
                    "cancelled_suffix_transaction_settles_before_newer_append[sqlite]",
                    "failed_encrypted_suffix_transaction_preserves_original_tokens[sqlite-False]",
                    "failed_encrypted_suffix_transaction_preserves_original_tokens[sqlite-True]",
                )
            },
            **{
                "tests/memory/test_openai_responses_compaction_session.py::TestOpenAIResponsesCompactionSession::"
                f"test_settled_{test}_failure_invalidates_response_chain": _LOOKS_INTO_SQLITE
                for test in ("pop", "clear")
            },
            **{
                f"tests/extensions/memory/test_encrypt_session.py::test_encrypted_pop_{test}": _ONLY_SQLITE_SESSION
                for test in (
                    "wrong_key_preserves_recoverable_history",
                    "rechecks_authentication_after_expired_tail",
                    "authentication_is_atomic_with_concurrent_mutations",
                    "wrong_key_preserves_row_identity",
                    "cancellation_waits_for_authentication_rollback",
                )
            },
        },
    ),
    Suite(
        name="openai-agents-runner",
        plugin="bind_openai_agents",
        package="openai-agents",
        tests=(
            "tests/test_agent_runner.py",
            "tests/test_agent_runner_streamed.py",
            "tests/test_cancel_streaming.py",
            "tests/test_handoff_history_duplication.py",
            "tests/test_hitl_session_scenario.py",
            "tests/test_invalid_final_output_handler.py",
            "tests/test_max_turns.py",
            "tests/test_native_tool_failure_history.py",
            "tests/test_programmatic_tool_calling.py",
            "tests/test_prompt_cache_key.py",
            "tests/test_run_impl_resume_paths.py",
            "tests/test_run_state_pending_input.py",
            "tests/test_runtime_symmetry_contract.py",
            "tests/test_soft_cancel.py",
            "tests/test_tool_batch_failure_history.py",
            "tests/test_tool_failure_boundaries.py",
            "tests/sandbox/test_memory.py",
            "tests/sandbox/test_runtime.py",
        ),
        cannot_apply={
            "tests/test_run_impl_resume_paths.py::test_handoff_resume_after_cancelled_compaction_commits": (
                _LOOKS_INTO_SQLITE
            ),
        },
        stores=("memory-blocking", "sqlite-blocking", "memory-async"),
    ),
]
