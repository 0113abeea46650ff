-- Take a lease, or renew it. A lease is {owner, token, expires}, in microseconds by the server's clock.
-- KEYS[1]  the shard        ARGV  name, owner, ttl in microseconds
-- Returns {1, token, expires} or {0, owner, expires}; numbers as text, because a reply has whole numbers only.

local leases, name, owner = KEYS[1] .. 'leases', ARGV[1], ARGV[2]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local packed = redis.call('HGET', leases, name)
local held = packed and cmsgpack.unpack(packed)
if held and held[3] > now and held[1] ~= owner then return {0, held[1], string.format('%.0f', held[3])} end
-- one counter for the whole shard: a token is never given twice, even if the record of the lease was deleted
local renews = held and held[1] == owner and held[3] ~= 0  -- 0: it was released
local token = renews and held[2] or redis.call('HINCRBY', KEYS[1] .. 'counts', 'tokens', 1)
local expires = now + tonumber(ARGV[3])
redis.call('HSET', leases, name, cmsgpack.pack({owner, token, expires}))
return {1, string.format('%.0f', token), string.format('%.0f', expires)}
