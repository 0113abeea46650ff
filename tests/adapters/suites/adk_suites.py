"""Google ADK's own tests, which are only in its repository."""

from __future__ import annotations

from suite import Suite

_LOOKS_INSIDE = "looks into or replaces the tables, dicts or private methods of ADK's own services"
_OF_AN_EARLIER_ADK = "written for an earlier ADK: fails on ADK's own services as well"
_REPOSITORY = "https://github.com/google/adk-python"
_COMMIT = "bb56aa56f79da843d50e0c01637f97e7f26435a2"  # of July 2026, after 2.5.0

ADK_SUITES = [
    Suite(
        name="adk",
        plugin="bind_adk",
        package="google-adk",
        repository=_REPOSITORY,
        commit=_COMMIT,
        tests=(
            "tests/unittests/sessions/test_session_service.py",
            "tests/unittests/artifacts/test_artifact_service.py",
        ),
        # One of each: ADK runs them on every service that it has, and ours would stand for all.
        options=("-k", "not SessionServiceType.IN_MEMORY and not SessionServiceType.SQLITE and not GCS and not FILE"),
        cannot_apply={
            **{
                f"tests/unittests/sessions/test_session_service.py::test_{test}": _LOOKS_INSIDE
                for test in (
                    "append_event_calls_rollback_on_commit_failure",
                    "append_event_raises_if_app_state_row_missing",
                    "append_event_raises_if_user_state_row_missing",
                    "append_event_reads_storage_revision_before_commit",
                    "append_event_when_session_is_same_ref_as_storage_session",
                    "concurrent_prepare_tables_no_race_condition",
                    "create_session_calls_rollback_on_commit_failure",
                    "create_session_reads_storage_revision_before_commit",
                    "database_session_service_creates_read_only_engine_for_other_dialects",
                    "database_session_service_creates_read_only_engine_for_spanner",
                    "database_session_service_enables_pool_pre_ping_by_default",
                    "database_session_service_get_session_uses_read_only_factory",
                    "database_session_service_keeps_timezone_for_spanner",
                    "database_session_service_list_sessions_uses_read_only_factory",
                    "database_session_service_requires_one_argument",
                    "database_session_service_respects_pool_pre_ping_override",
                    "database_session_service_uses_naive_datetime_for_dialect",
                    "delete_session_calls_rollback_on_commit_failure",
                    "get_or_create_state_creates_new_row",
                    "get_or_create_state_handles_race_condition",
                    "get_or_create_state_returns_existing_row",
                    "prepare_tables_idempotent_after_creation",
                    "prepare_tables_serializes_schema_detection_and_creation",
                    "public_prepare_tables_eager_initialization",
                    "service_recovers_after_multiple_failures",
                )
            },
            "tests/unittests/sessions/test_session_service.py::"
            "test_database_session_service_sqlite_file_timestamp_read_after_reopen": _LOOKS_INSIDE,
            "tests/unittests/sessions/test_session_service.py::"
            "test_vertex_ai_session_service_raises_not_implemented_for_get_user_state": "a service of Google's cloud",
            **{
                f"tests/unittests/artifacts/test_artifact_service.py::test_{test}": reason
                for test, reason in (
                    ("artifact_reference_rejects_cross_session_on_load", _LOOKS_INSIDE),
                    ("list_artifact_versions_and_get_artifact_version", "asks for URIs that begin with memory:"),
                    ("list_artifact_versions_with_user_prefix", "asks for URIs that begin with memory:"),
                )
            },
        },
    ),
    Suite(
        name="adk-runner",
        plugin="bind_adk",
        package="google-adk",
        repository=_REPOSITORY,
        commit=_COMMIT,
        tests=tuple(
            f"tests/unittests/{name}.py"
            for name in (
                "agents/test_invocation_context_process_queue",
                "agents/test_llm_agent_callbacks",
                "agents/test_llm_agent_interruptions",
                "agents/test_llm_agent_output_save",
                "agents/test_llm_agent_streaming_output",
                "agents/test_loop_agent",
                "agents/test_managed_agent",
                "agents/test_model_callback_chain",
                "agents/test_output_key_visibility",
                "agents/test_parallel_agent",
                "agents/test_resumable_llm_agent",
                "agents/test_sequential_agent",
                "apps/test_compaction_rewind_e2e",
                "apps/test_compaction_runner_e2e",
                "flows/llm_flows/test_agent_transfer_system_instructions",
                "flows/llm_flows/test_async_tool_callbacks",
                "flows/llm_flows/test_base_llm_flow_partial_handling",
                "flows/llm_flows/test_context_cache_processor",
                "flows/llm_flows/test_functions_long_running",
                "flows/llm_flows/test_functions_parallel",
                "flows/llm_flows/test_functions_parallel_error",
                "flows/llm_flows/test_functions_sequential",
                "flows/llm_flows/test_functions_simple",
                "flows/llm_flows/test_identity",
                "flows/llm_flows/test_model_callbacks",
                "flows/llm_flows/test_nl_planning",
                "flows/llm_flows/test_other_configs",
                "flows/llm_flows/test_plugin_tool_callbacks",
                "flows/llm_flows/test_progressive_sse_streaming",
                "flows/llm_flows/test_tool_telemetry",
                "flows/llm_flows/test_transcription_manager",
                "plugins/test_multimodal_tool_results_plugin",
                "plugins/test_notification_error_callbacks",
                "plugins/test_reflect_retry_tool_plugin",
                "runners/test_pause_invocation",
                "runners/test_resume_invocation",
                "runners/test_run_tool_confirmation",
                "runners/test_runner_debug",
                "runners/test_runner_node",
                "runners/test_runner_rewind",
                "streaming/test_live_streaming_configs",
                "streaming/test_multi_agent_streaming",
                "streaming/test_streaming",
                "streaming/test_streaming_audio_storage",
                "test_runners",
                "tools/test_agent_tool",
                "workflow/test_agent_node",
                "workflow/test_agent_transfer",
                "workflow/test_node_runner_ctx",
                "workflow/test_node_runner_integration",
                "workflow/test_workflow",
                "workflow/test_workflow_bytes",
                "workflow/test_workflow_dynamic_nodes",
                "workflow/test_workflow_live",
                "workflow/test_workflow_node_timeout",
                "workflow/test_workflow_output_deduplication",
            )
        ),
        options=("-W", "ignore"),
        cannot_apply={
            **{
                f"tests/unittests/{test}": _OF_AN_EARLIER_ADK
                for test in (
                    "runners/test_runner_debug.py::TestRunDebug::test_run_debug_verbose_flag_false",
                    "runners/test_runner_node.py::test_resume_by_invocation_id_populates_user_content",
                    "runners/test_runner_node.py::test_resume_populates_invocation_user_content",
                    "runners/test_runner_node.py::test_resume_preserves_original_user_content",
                    "runners/test_runner_node.py::test_standalone_node_resume",
                    "streaming/test_streaming.py::test_async_gen_with_input_stream_wrong_annotation_gets_no_stream",
                    "streaming/test_streaming.py::test_input_streaming_tool_has_stream_set_at_registration",
                    "streaming/test_streaming.py::test_input_streaming_tool_registered_lazily_with_stream",
                    "streaming/test_streaming.py::test_input_streaming_tool_stream_recreated_after_stop",
                    "streaming/test_streaming.py::test_output_streaming_tool_registered_lazily_without_stream",
                    "streaming/test_streaming.py::test_stop_streaming_resets_stream_to_none",
                    "test_runners.py::TestRunnerCacheConfig::test_runner_validate_params_return_order",
                    "test_runners.py::TestRunnerCacheConfig::test_runner_validate_params_without_app",
                    "test_runners.py::TestRunnerFindAgentToRun::test_find_agent_to_run_skips_function_response_when_not_resumable",
                    "test_runners.py::TestRunnerFindAgentToRun::test_is_transferable_across_agent_tree_with_llm_agent",
                    "test_runners.py::TestRunnerFindAgentToRun::test_is_transferable_across_agent_tree_with_non_llm_agent",
                    "test_runners.py::TestRunnerFindAgentToRun::test_is_transferable_across_agent_tree_with_non_transferable_agent",
                    "tools/test_agent_tool.py::test_agent_tool_inherits_parent_app_name",
                    "tools/test_agent_tool.py::test_no_schema_args_handling",
                )
            },
            **{
                f"tests/unittests/flows/llm_flows/test_functions_long_running.py::test_async_function{more}": (
                    "expects that the session holds the very objects that a model was given: fails on ADK's "
                    "SqliteSessionService as well"
                )
                for more in ("", "_with_none_response")
            },
            "tests/unittests/streaming/test_streaming.py::test_live_streaming_text_content_persisted_in_session": (
                "ends the run while its event is being saved: fails on ADK's DatabaseSessionService as well"
            ),
        },
    ),
]
