-- The numbers of a shard's records, in `sizes`, which every script that writes records keeps in step with them. This text
-- comes before that of each such script.
--
-- A lineage that expires does so without a script, so its share is also in `held`, and the time in `due`: the share is
-- taken off when the sizes are next read, or when the lineage begins again.

local SIZES = {'threads', 'branches', 'rows', 'blobs', 'bytes'}

-- What a lineage has, in the order of SIZES; bytes are the lengths of its records.
local function share(base, lineage)
  return {
    redis.call('HLEN', base .. 'heads:' .. lineage),
    redis.call('HLEN', base .. 'branches:' .. lineage),
    redis.call('HLEN', base .. 'steps:' .. lineage),
    redis.call('HLEN', base .. 'blobs:' .. lineage),
    tonumber(redis.call('HGET', base .. 'tops:' .. lineage, 'bytes') or 0),
  }
end

local function change_sizes(base, before, after)
  for i, what in ipairs(SIZES) do
    local more = after[i] - before[i]
    if more ~= 0 then redis.call('HINCRBY', base .. 'sizes', what, string.format('%.0f', more)) end
  end
end

-- Remember the share of a lineage that expires at `due`, or forget it (due is false).
local function hold(base, lineage, due)
  if due then
    redis.call('HSET', base .. 'held', lineage, cmsgpack.pack(share(base, lineage)))
    redis.call('ZADD', base .. 'due', due, lineage)
  elseif redis.call('HDEL', base .. 'held', lineage) == 1 then
    redis.call('ZREM', base .. 'due', lineage)
  end
end

-- Take off the share of a lineage, if it has expired.
local function take_off_expired(base, lineage)
  local held = redis.call('HGET', base .. 'held', lineage)
  if not held then return end
  if redis.call('EXISTS', base .. 'heads:' .. lineage, base .. 'branches:' .. lineage, base .. 'blobs:' .. lineage) > 0 then
    return
  end
  change_sizes(base, cmsgpack.unpack(held), {0, 0, 0, 0, 0})
  hold(base, lineage, false)
end

