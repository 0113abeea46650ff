"""Fixtures by theme live in tests/fix_*.py.

Property tests draw the same examples in each run and have no deadline, so their result does not depend on the machine.
`make test ARGS="--hypothesis-profile=explore tests/history"` searches for new ones.

Environment variables that configure backtrail, a driver, a framework or colours are removed. The user's cache and state
directories are others than usual, and new ones for each run.
"""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "fix_needs",
    "fix_proxy",
    "fix_servers",
    "fix_stores",
    "fix_pairs",
    "fix_generations",
    "fix_tls",
    "fix_pooler",
    "fix_harness",
    "fix_cuts",
]

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("backtrail", settings.get_profile("explore"), derandomize=True, database=None)
settings.load_profile("backtrail")

_PREFIXES = ("BACKTRAIL_", "PG", "OTEL_", "LANGSMITH_", "LANGCHAIN_", "OPENAI_", "ANTHROPIC_", "GOOGLE_")
_COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES")
_TESTS = ("BACKTRAIL_CHROMIUM", "BACKTRAIL_FAULT_", "BACKTRAIL_TEST_")  # these configure tests
for _name in list(os.environ):
    if not _name.startswith(_TESTS) and (_name.startswith(_PREFIXES) or _name in _COLOURS):
        del os.environ[_name]

_user = tempfile.TemporaryDirectory(prefix="backtrail-user-", ignore_cleanup_errors=True)
os.environ["XDG_CACHE_HOME"], os.environ["XDG_STATE_HOME"] = f"{_user.name}/cache", f"{_user.name}/state"
