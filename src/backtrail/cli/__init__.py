"""The command `backtrail`. Everything a person can do with a store, from a terminal; the one room that prints.

`main` is the table of commands, `frame` what all of them share, `screen` how things are shown. Each command is a module
of its own in `commands/`, imported only when it is called: `backtrail --help` and `backtrail log` start at once.
"""
