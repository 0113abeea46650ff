"""Meaning: what a save, a load, a fork, a rewind and a diff are. Awaits engine methods and nothing else."""
