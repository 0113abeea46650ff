"""Fixtures by theme live in tests/fix_*.py."""

from __future__ import annotations

pytest_plugins = ["fix_proxy", "fix_servers", "fix_stores", "fix_pairs", "fix_tls", "fix_pooler"]
