"""The limits of retries, waits and checks in a mirror and its spool that are not settings of the user."""

from __future__ import annotations

from backtrail.engines.retry import RetryPolicy

#: The delivery of a lineage, if other processes write to its threads at the same time.
DELIVERY = RetryPolicy.times(8)
#: A delivery, if the roles change meanwhile.
LANDING = RetryPolicy.times(3)
#: The comparison of a lineage, if its heads move meanwhile.
COMPARISON = RetryPolicy.times(16)
#: Reading both sides' role records, while other processes change them.
LEARNING = RetryPolicy.times(5)
#: A change of roles that another process began: after that it counts as abandoned.
ROLE_CHANGE = RetryPolicy.seconds(5.0, pause=0.02)
#: Rounds when a mirror is closed, each of which ships all that it can; the rest is left to the next open.
LAST_ROUNDS = RetryPolicy(retries=4, backoff=0.05, longest_pause=0.05)

LOOK_AGAIN = 0.5  #: seconds between checks while something is wrong or in progress
CLOSE_WITHIN = 5.0  #: seconds that background work may still take when the mirror is closed
GATHER = 0.02  #: seconds that a commit may wait for others to be shipped with it
LOOKS_PER_COMPARISON = 20  #: health checks between two comparisons of all heads, which find what a dead process left
