"""The semantics of save, load, fork, rewind and diff, over any engine. Awaits engine methods and nothing else."""
