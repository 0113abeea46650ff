-- Ids and sizes of a pool's blobs, ascending.
-- KEYS[1]  the shard        ARGV  pool, lower bound for ZRANGEBYLEX, how many        Returns {id, size, …}.

local key, found = KEYS[1] .. 'blobs:' .. ARGV[1], {}
for _, id in ipairs(redis.call('ZRANGEBYLEX', KEYS[1] .. 'blob-ids:' .. ARGV[1], ARGV[2], '+', 'LIMIT', 0, ARGV[3])) do
  found[#found + 1] = id
  found[#found + 1] = redis.call('HSTRLEN', key, id)
end
return found
