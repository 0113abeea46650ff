"""`lease` and `release`: a named lock with an expiry and a token that only grows."""

from __future__ import annotations

import msgspec
import pytest

from backtrail.engines.base import Engine, Fence, Lease, Taken
from backtrail.errors import LockLost
from backtrail.testing import call_modes, sample_records
from backtrail.testing.contract.binding import Binding, case

LONG, SHORT = 300.0, 0.02


async def taken(engine: Engine, name: str, owner: str, ttl: float = LONG) -> Lease:
    """Take a lease that must be free."""
    lease = await engine.lease(name, owner, ttl)
    assert isinstance(lease, Lease), lease
    assert (lease.name, lease.owner) == (name, owner)
    return lease


async def once_expired(engine: Engine, name: str, owner: str) -> Lease:
    """Request a lease repeatedly until its owner's has expired."""
    while isinstance(lease := await engine.lease(name, owner, LONG), Taken):
        await call_modes.pause(SHORT)
    return lease


class LeaseCases(Binding):
    """Leases, and commits that rely on them."""

    @case
    async def test_a_lease_that_somebody_has_is_taken_for_everybody_else(self, engine: Engine) -> None:
        mine = await taken(engine, "x", "me")
        assert await engine.lease("x", "you", LONG) == Taken("me", mine.expires)
        assert isinstance(await engine.lease("y", "you", LONG), Lease), "another name is another lease"

    @case
    async def test_the_owner_renews_its_lease_and_keeps_the_token(self, engine: Engine) -> None:
        mine = await taken(engine, "x", "me", 60)
        again = await taken(engine, "x", "me", 600)
        assert again.token == mine.token
        assert again.expires > mine.expires
        assert await engine.lease("x", "you", LONG) == Taken("me", again.expires)

    @case
    async def test_an_expired_lease_goes_to_the_next_with_a_higher_token(self, engine: Engine) -> None:
        mine = await taken(engine, "x", "me", SHORT)
        yours = await once_expired(engine, "x", "you")
        assert yours.owner == "you"
        assert yours.token > mine.token
        assert yours.expires > mine.expires

    @case
    async def test_a_lease_that_expired_is_renewed_with_its_token_if_nobody_had_it_meanwhile(
        self, engine: Engine
    ) -> None:
        mine = await taken(engine, "x", "me", SHORT)
        await call_modes.pause(SHORT * 3)
        assert (await taken(engine, "x", "me")).token == mine.token
        assert isinstance(await engine.lease("x", "you", LONG), Taken)

    @case
    async def test_an_owner_sees_by_its_token_that_another_had_the_lease_meanwhile(self, engine: Engine) -> None:
        mine = await taken(engine, "x", "me", SHORT)
        yours = await once_expired(engine, "x", "you")
        assert await engine.release("x", "you") is True
        assert (await taken(engine, "x", "me")).token > yours.token > mine.token

    @case
    async def test_a_lease_that_its_owner_released_is_a_new_one(self, engine: Engine) -> None:
        mine = await taken(engine, "x", "me")
        assert await engine.release("x", "me") is True
        assert (await taken(engine, "x", "me")).token > mine.token

    @case
    async def test_a_released_lease_goes_to_the_next_with_a_higher_token(self, engine: Engine) -> None:
        tokens = []
        for owner in "me", "you", "me", "me":
            tokens.append((await taken(engine, "x", owner)).token)
            assert await engine.release("x", owner) is True
        assert tokens == sorted(set(tokens))

    @case
    async def test_nobody_frees_the_lease_of_another(self, engine: Engine) -> None:
        mine = await taken(engine, "x", "me")
        assert await engine.release("x", "you") is False
        assert await engine.release("y", "me") is False
        assert await engine.lease("x", "you", LONG) == Taken("me", mine.expires)
        assert await engine.release("x", "me") is True
        assert await engine.release("x", "me") is False

    @case
    async def test_a_former_owner_cannot_free_the_lease_of_the_next(self, engine: Engine) -> None:
        await taken(engine, "x", "me", SHORT)
        yours = await once_expired(engine, "x", "you")
        assert await engine.release("x", "me") is False
        assert await engine.lease("x", "me", LONG) == Taken("you", yours.expires)

    @case
    async def test_a_lease_may_be_named_like_anything(self, engine: Engine) -> None:
        await engine.commit(sample_records.first(sample_records.branch("x")))
        for name in "x", "lock:x", "{x}", "a b", "日本語", "%", "'":
            assert (await taken(engine, name, "😀 owner")).owner == "😀 owner"
            assert isinstance(await engine.lease(name, "other", LONG), Taken)
        assert await engine.head("x") == sample_records.head(sample_records.branch("x"))
        assert len(await engine.threads()) == 1

    @case
    async def test_a_commit_behind_a_valid_fence_is_applied(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        lease = await taken(engine, "the lock", "me")
        await engine.commit(msgspec.structs.replace(sample_records.first(at), fence=Fence("the lock", lease.token)))
        assert await engine.head("t") == sample_records.head(at)
        renewed = await taken(engine, "the lock", "me")
        following = sample_records.following(sample_records.head(at), at)
        await engine.commit(msgspec.structs.replace(following, fence=Fence("the lock", renewed.token)))
        assert await engine.head("t") == sample_records.head(at, 2, 2)

    @case
    async def test_a_stale_owner_that_wakes_up_late_is_refused(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        mine = await taken(engine, "the lock", "me", SHORT)
        yours = await once_expired(engine, "the lock", "you")
        following = sample_records.following(sample_records.head(at), at)
        with pytest.raises(LockLost):
            await engine.commit(msgspec.structs.replace(following, fence=Fence("the lock", mine.token)))
        assert await engine.head("t") == sample_records.head(at)
        await engine.commit(msgspec.structs.replace(following, fence=Fence("the lock", yours.token)))
        assert await engine.head("t") == sample_records.head(at, 2, 2)

    @case
    async def test_eight_who_ask_at_once_get_one_lease(self, engine: Engine) -> None:
        answers = await call_modes.race([engine.lease("x", f"owner {n}", LONG) for n in range(8)])
        won = [answer for answer in answers if isinstance(answer, Lease)]
        assert len(won) == 1
        assert [answer for answer in answers if answer not in won] == [Taken(won[0].owner, won[0].expires)] * 7
