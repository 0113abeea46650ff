"""How often and how long a mirror and its spool try, wait and look: every limit that is no setting of the user's."""

from __future__ import annotations

from backtrail.engines.retry import RetryPolicy

#: A save into the spool that other saves overtake.
SPOOL_SAVE = RetryPolicy.times(64)
#: The delivery of a lineage whose threads others write to at the same time.
DELIVERY = RetryPolicy.times(8)
#: A delivery that meets a change of roles.
LANDING = RetryPolicy.times(3)
#: The comparison of a lineage whose heads move under it.
COMPARISON = RetryPolicy.times(16)
#: Both sides' role records, while other processes change them.
LEARNING = RetryPolicy.times(5)
#: A change of roles that another process began: after that it counts as abandoned.
ROLE_CHANGE = RetryPolicy.seconds(5.0, pause=0.02)
#: A save that only the follower has: for so long it may be one that another process is still making.
SAVE_UNDER_WAY = RetryPolicy.seconds(2.0, pause=0.01)
#: Rounds without progress, when a mirror is closed: then the rest is left to the next open.
VAIN_ROUNDS = RetryPolicy(retries=4, backoff=0.05, longest_pause=0.05)

LOOK_AGAIN = 0.5  #: seconds between looks while something is wrong or under way
CLOSE_WITHIN = 5.0  #: seconds that background work may still take when the mirror is closed
GATHER = 0.02  #: seconds that a commit may wait for others that go along
LOOKS_PER_COMPARISON = 20  #: health checks between two comparisons of all heads, for what a process that died left
