"""Several client processes over one mirror, each with its own view of a partition, and a checker that knows every
operation that was acknowledged to any of them.

A round: three to five processes open the same two sides and work for some seconds, while each of them sees both sides,
only one or none, is killed, stopped or finds its clock moved. Then everything heals, all that still live catch up, a
fresh process catches up after them, and both sides are compared with what was acknowledged.

    PYTHONPATH=tests python -m several_processes --rounds 1000

Rooms: `plan` (what happens when, from a seed), `board` (how a process is told what it sees), `sides` (the engines),
`client` (what a process does), `ledger` (what it was told), `views` (who could know what), `checker` (the promises),
`rounds` (all of it together).
"""
