"""Fuzzers: hostile stores, files and requests in large numbers. `python -m fuzz --help`, or `make fuzz`.

A target makes inputs from numbers and tries each. The same number makes the same input in one run; a target that
changes a store begins with a new one in each run, so its findings are replayed from their files (`--file`).

An input may end with the right result or with a `BacktrailError`; anything else is a finding, and so is an input that
takes over five seconds or 512 MB. A finding is saved under `fuzz/found/`; one that is worth keeping is moved to
`fuzz/corpus/TARGET/`, where every later run begins.
"""
