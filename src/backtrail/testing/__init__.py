"""Tests for authors of engines: the contract suite, and a state machine that compares a store with a model."""
