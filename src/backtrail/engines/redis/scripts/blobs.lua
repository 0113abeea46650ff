-- The blobs of a pool that exist among the given ids.
-- KEYS[1]  the shard        ARGV  pool, id, id, …        Returns the data in that order; false where there is none.

local key, found, chunk = KEYS[1] .. 'blobs:' .. ARGV[1], {}, 1000
for low = 2, #ARGV, chunk do
  local page = redis.call('HMGET', key, unpack(ARGV, low, math.min(low + chunk - 1, #ARGV)))
  for _, data in ipairs(page) do found[#found + 1] = data end
end
return found
