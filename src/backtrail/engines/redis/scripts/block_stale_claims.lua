-- Called before a pointer is moved to another lineage: writers that rely on it can then not create the thread in the old.
-- KEYS[1]  the lineage's shard        ARGV  thread, lineage, version of the pointer
-- Returns 0 if the thread exists there, else 1. The block outlasts any call that could still be in progress.

if redis.call('HEXISTS', KEYS[1] .. 'heads:' .. ARGV[2], ARGV[1]) == 1 then return 0 end
local blocked = KEYS[1] .. 'blocked:' .. #ARGV[1] .. ':' .. ARGV[1] .. ARGV[2]
local known = redis.call('GET', blocked)
-- A slow caller with an older pointer must not lower the version that a newer one has blocked.
local version = known and math.max(tonumber(known), tonumber(ARGV[3])) or tonumber(ARGV[3])
redis.call('SET', blocked, string.format('%d', version), 'EX', 3600)
return 1
