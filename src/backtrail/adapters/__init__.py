"""Adapters that implement the storage interfaces of agent frameworks: one module per framework, none imported by
default.

Each adapter uses the public API only and takes a `Store` or an `AsyncStore`.
"""
