"""backtrail behind the interfaces that agent frameworks already have: one module per framework, none imported by
default.

Each adapter uses the public API only and takes a `Store` or an `AsyncStore`.
"""
