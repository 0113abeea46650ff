"""Fuzzers: hostile stores, files and requests in large numbers. `python -m fuzz --help`, or `make fuzz`.

A target makes inputs from numbers (the same number makes the same input for ever) and tries each. It may end with the
right result or with a `BacktrailError`; anything else is a finding, and so is an input that takes over five seconds or
512 MB. A finding is saved under `fuzz/found/`; one that is worth keeping is moved to `fuzz/corpus/TARGET/`, where every
later run begins.
"""
