-- Release a lease, if the owner still holds it. The record stays, because fences are compared with its token.
-- KEYS[1]  the shard        ARGV  name, owner        Returns 1 or 0.

local packed = redis.call('HGET', KEYS[1] .. 'leases', ARGV[1])
if not packed then return 0 end
local held, clock = cmsgpack.unpack(packed), redis.call('TIME')
if held[1] ~= ARGV[2] or held[3] <= tonumber(clock[1]) * 1000000 + tonumber(clock[2]) then return 0 end
redis.call('HSET', KEYS[1] .. 'leases', ARGV[1], cmsgpack.pack({held[1], held[2], 0}))
return 1
