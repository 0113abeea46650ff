"""Encoding: values <-> bytes, states <-> roots, pieces and payloads. Pure functions, no I/O."""
