"""`redis://`: a store on Redis 6.2 or later, Valkey, Sentinel or a Cluster, without modules.

Each call is one Lua script, run in one hash slot: all or nothing, in one round trip. `keys.py` names every key.
"""

from __future__ import annotations

from backtrail.errors import MissingExtra

try:
    import redis as _driver  # noqa: F401
except ImportError as error:
    raise MissingExtra("the Redis engine", "redis") from error

from backtrail.engines.redis.engine import RedisEngine

__all__ = ["RedisEngine"]
