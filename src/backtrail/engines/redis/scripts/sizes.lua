-- The sizes of a shard, after taking off those of expired lineages.        KEYS[1]  the shard        ARGV  nothing
-- Returns {threads, branches, rows, blobs, bytes}, or MORE: ask again.

local base, chunk = KEYS[1], 500
if redis.call('EXISTS', base .. 'due') == 1 then
  local clock = redis.call('TIME')
  local now = string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
  local expired = redis.call('ZRANGEBYSCORE', base .. 'due', '-inf', '(' .. now, 'LIMIT', 0, chunk)
  for _, lineage in ipairs(expired) do take_off_expired(base, lineage) end
  if #expired == chunk then return redis.status_reply('MORE') end
end
local found = redis.call('HMGET', base .. 'sizes', unpack(SIZES))
for i = 1, #SIZES do found[i] = tonumber(found[i] or 0) end
return found
