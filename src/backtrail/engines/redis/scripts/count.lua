-- The number of threads of one shard, from the sizes of its sorted sets.
-- KEYS[1]  the shard        ARGV  lower bound for ZLEXCOUNT, upper bound
-- Returns -1 if lineages of the shard may have expired: then their threads are still in the sets.

local base = KEYS[1]
if redis.call('HEXISTS', base .. 'counts', 'expiring') == 1 then return -1 end
local found = 0
for _, kind in ipairs(redis.call('SMEMBERS', base .. 'kinds')) do
  found = found + redis.call('ZLEXCOUNT', base .. 'names:' .. kind, ARGV[1], ARGV[2])
end
return found
