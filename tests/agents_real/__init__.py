"""Tests with the real coding agents, offline, against a model of our own; `make test-agents` runs them."""
