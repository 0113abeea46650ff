"""Tells the agents to run the hook: user-level settings are merged, and can be taken back.

`programs` says what is on this machine, `settings` what is to be written and removed, `json_text` how a file that
people have written is changed, and `status` how it all stands.
"""
