-- The lineages of one shard that are not empty, ascending. Expired ones are removed from the index on the way.
-- KEYS[1]  the shard        ARGV  lower bound for ZRANGEBYLEX, how many, upper bound

local base, limit = KEYS[1], tonumber(ARGV[2])
local found, gone, offset, chunk = {}, {}, 0, 500
while #found < limit do
  local page = redis.call('ZRANGEBYLEX', base .. 'lineages', ARGV[1], ARGV[3], 'LIMIT', offset, chunk)
  for _, name in ipairs(page) do
    if #found == limit then break end
    if redis.call('EXISTS', base .. 'heads:' .. name, base .. 'branches:' .. name, base .. 'blobs:' .. name) > 0 then
      found[#found + 1] = name
    else
      gone[#gone + 1] = name
    end
  end
  offset = offset + #page
  if #page < chunk then break end
end
for _, name in ipairs(gone) do redis.call('ZREM', base .. 'lineages', name) end
return found
