"""The command `backtrail`: everything a person can do with a store from a terminal. The only package that prints.

`main` is the table of commands, `context` holds what all of them share, `output` prints to a terminal or a pipe. Each
command is a module of its own in `commands/`, imported only when it is called, so that `backtrail --help` and
`backtrail log` start fast.
"""
