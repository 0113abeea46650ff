-- Delete entries of expired lineages, and leases that expired long ago, from the shard's own keys.
-- KEYS[1]  the shard        ARGV  "branches" or "leases", cursor, how long ago a lease must have expired (microseconds)
-- Returns the next cursor; "0" when done.

local key = KEYS[1] .. ARGV[1]
local page = redis.call('HSCAN', key, ARGV[2], 'COUNT', 500)
local clock = redis.call('TIME')
local before = tonumber(clock[1]) * 1000000 + tonumber(clock[2]) - tonumber(ARGV[3])
for i = 1, #page[2], 2 do
  local field, value = page[2][i], page[2][i + 1]
  local gone
  if ARGV[1] == 'branches' then
    gone = redis.call('HEXISTS', KEYS[1] .. 'branches:' .. value, field) == 0
  else
    gone = cmsgpack.unpack(value)[3] < before
  end
  if gone then redis.call('HDEL', key, field) end
end
return page[1]
