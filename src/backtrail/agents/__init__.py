"""Coding agents from outside: what Claude Code, Codex, Gemini CLI and opencode do is captured by their own hooks.

`events` reads what a hook is sent, `transcripts` the new lines of the agent's transcript, `capture` saves both with a
snapshot of the directory as one checkpoint, and `sessions` finds them again as turns. `hook` is the process that the
agents start; `user_store` says where it all is kept.
"""
