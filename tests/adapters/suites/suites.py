"""The suites: which tests of a framework run on backtrail's stores, and which cannot apply."""

from __future__ import annotations

from adk_suites import ADK_SUITES
from suite import EVERY_SYNC, Suite

_LOOKS_INTO_SQLITE = "looks into, breaks or locks the tables and connections of the SDK's own SQLite session"
_LOOKS_INTO_SAVERS = "looks into the dicts or tables of LangGraph's own savers"
_ONLY_SQLITE_SESSION = "the SDK checks a token before it pops only where the session is its own SQLiteSession"
_REFUSED_PRUNES = (
    "keep_latest_refuses_a_batch_with_a_delta_channel_thread",
    "akeep_latest_refuses_a_batch_with_a_delta_channel_thread",
)
_HOOKED_PRUNES = (
    "keep_latest_keeps_a_turn_saved_after_it_read_the_heads",
    "keep_latest_refuses_a_thread_that_switches_to_a_delta_channel_mid_batch",
    "keep_latest_keeps_a_delta_channel_turn_saved_after_the_thread_check",
)

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
    ),
    *ADK_SUITES,
    # LangGraph's async savers are bound to an AsyncStore, all others to a Store, on each of these engines.
    Suite(
        name="langgraph",
        plugin="bind_langgraph",
        package="langgraph",
        tests=tuple(
            f"tests/test_{name}.py"
            for name in (
                "algo",
                "channels",
                "checkpoint_migration",
                "delta_channel_exit_mode",
                "delta_channel_fork",
                "delta_channel_id_stability",
                "delta_channel_migration",
                "delta_channel_node_cache",
                "delta_channel_parallel_order",
                "delta_channel_run_input",
                "delta_channel_seal_subscribers",
                "delta_channel_subgraph",
                "delta_channel_supersteps_bound",
                "delta_channel_to_plain",
                "delta_channel_update_overwrite",
                "delta_channel_update_state",
                "delta_channel_write_failures",
                "deprecation",
                "graph_callbacks",
                "interrupt_state",
                "interruption",
                "large_cases",
                "large_cases_async",
                "pregel",
                "pregel_async",
                "pregel_stream_events_v3",
                "pydantic",
                "retry",
                "runtime",
                "stream_data_transformers",
                "stream_events_v3",
                "stream_events_v3_e2e",
                "strict_resume",
                "subgraph_persistence",
                "subgraph_persistence_async",
                "time_travel",
                "time_travel_async",
                "tool_stream_handler",
            )
        ),
        # With [sqlite] a test is the same as with [memory]; [sqlite_aes] and [sqlite_aio] are not.
        options=("-k", "not (sqlite and not sqlite_aes and not sqlite_aio)", "-W", "ignore", "-o", "addopts="),
        cannot_apply={
            f"tests/test_{test}": _LOOKS_INTO_SAVERS
            for test in (
                "channels.py::test_delta_channel_snapshot_version_based",
                "delta_channel_update_state.py::test_bulk_update_state_replays_updates_in_the_order_given",
                "delta_channel_update_state.py::test_abulk_update_state_replays_updates_in_the_order_given",
            )
        },
        stores=EVERY_SYNC,
    ),
    Suite(
        name="langgraph-prune",
        plugin="bind_langgraph",
        package="langgraph",
        tests=("tests/test_prune_postgres.py",),
        options=("-k", "not pipe and not pool", "-W", "ignore", "-o", "addopts="),  # of each test one, as above
        cannot_apply={
            f"tests/test_prune_postgres.py::test_{test}": reason
            for reason, tests in (
                ("asks for an error; ours prunes threads with delta channels", _REFUSED_PRUNES),
                (_LOOKS_INTO_SAVERS, _HOOKED_PRUNES),
            )
            for test in tests
        },
        stores=EVERY_SYNC,
    ),
    Suite(
        name="langgraph-checkpoint",
        plugin="bind_langgraph",
        package="langgraph-checkpoint",
        tests=("tests/test_memory.py",),
        cannot_apply={
            f"tests/test_memory.py::{test}": _LOOKS_INTO_SAVERS
            for test in (
                "TestInMemorySaverDeltaChannel::test_load_blobs_omits_delta_channel",
                "TestInMemorySaverDeltaChannel::test_get_channel_writes_collects_ancestor_writes_only",
                "TestInMemorySaverDeltaChannel::test_get_channel_writes_at_root_returns_empty",
                "TestBaseFallbackGetChannelWrites::test_fallback_returns_ancestor_writes_oldest_first",
                "TestBaseFallbackGetChannelWrites::test_async_fallback_returns_ancestor_writes_oldest_first",
                "TestBaseFallbackGetChannelWrites::test_async_fallback_concurrent_tasks_do_not_interfere",
                "TestPreDeltaBlobTerminator::test_seed_from_pre_delta_ancestor_blob",
                "TestPreDeltaBlobTerminator::test_seed_bounds_walk_without_dropping_its_own_writes",
            )
        },
        stores=EVERY_SYNC,
    ),
    Suite(
        name="langgraph-checkpoint-sqlite",
        plugin="bind_langgraph",
        package="langgraph-checkpoint-sqlite",
        tests=(
            "tests/test_sqlite.py",
            "tests/test_aiosqlite.py",
            "tests/test_delta_channel_migration.py",
            "tests/test_delta_parent_walk.py",
            "tests/test_get_delta_channel_history.py",
        ),
        cannot_apply={
            "tests/test_sqlite.py::TestSqliteSaver::test_informative_async_errors": (
                "asks for an error from the async methods, which work on ours"
            ),
            "tests/test_sqlite.py::TestSqliteSaver::test_checkpoint_search_sql_injection_prevention": (
                "asks for an error; on ours the key of a filter is only data"
            ),
            "tests/test_delta_parent_walk.py::test_walk_step_looks_up_the_parent_by_primary_key": _LOOKS_INTO_SAVERS,
        },
        stores=EVERY_SYNC,
    ),
    Suite(
        name="langgraph-checkpoint-postgres",
        plugin="bind_langgraph",
        package="langgraph-checkpoint-postgres",
        tests=("tests/test_sync.py", "tests/test_async.py"),
        options=("-k", "not shallow"),  # the shallow saver keeps one checkpoint only
        cannot_apply={
            "tests/test_sync.py::test_nonnull_migrations": _LOOKS_INTO_SAVERS,
            **{
                f"tests/test_{module}.py::test_{test}": reason
                for module in ("sync", "async")
                for test, reason in (
                    ("get_checkpoint_no_channel_values", "replaces a private method of PostgresSaver"),
                    ("pending_sends_migration", "rows of LangGraph before 0.5, which the import of a database handles"),
                )
            },
        },
        stores=EVERY_SYNC,
    ),
]
