"""clew keeps the state of AI agents: every step saved, at the cost of what changed."""
