-- What nearly every commit is: one row behind the head, and the head's move onto it. As commit.lua does it, in less time.
-- KEYS[1]  the shard
-- ARGV     lineage, ttl in ms (0: for ever), thread, expected key, new head, updated, branch, step, light half, root, payload
-- Returns OK, {reason, which}, or {"more"} if this is not all there is to do.

local base, lineage, thread, new, id, step = KEYS[1], ARGV[1], ARGV[3], ARGV[5], ARGV[7], ARGV[8]
local heads = base .. 'heads:' .. lineage
local head = redis.call('HGET', heads, thread)
if not head or string.sub(head, 1, 32) ~= ARGV[4] then return {'moved', thread} end
local kind = string.sub(new, 34, 33 + string.byte(new, 33))
if string.sub(head, 34, 33 + string.byte(head, 33)) ~= kind then return {'more'} end
local record = redis.call('HGET', base .. 'branches:' .. lineage, id)
if not record then return {'gone', id} end
local n = string.match(record, '^%d+')
local field = n .. ':' .. step
if redis.call('HSETNX', base .. 'steps:' .. lineage, field, ARGV[9]) == 0 then return {'step', id, step} end

redis.call('HSET', base .. 'roots:' .. lineage, field, ARGV[10])
redis.call('HSET', base .. 'payloads:' .. lineage, field, ARGV[11])
redis.call('ZADD', base .. 'ids:' .. lineage, 0, string.sub(ARGV[9], 1, 16) .. id .. step)
local tops = base .. 'tops:' .. lineage
local known = redis.call('HMGET', tops, n, 'expires')
if not known[1] or tonumber(known[1]) < tonumber(step) then redis.call('HSET', tops, n, step) end
redis.call('HSET', heads, thread, new)
redis.call('ZADD', base .. 'ages:' .. kind, ARGV[6], thread)

local ttl = tonumber(ARGV[2])
if ttl > 0 or known[2] then
  if ttl > 0 then redis.call('HSET', tops, 'expires', 1) else redis.call('HDEL', tops, 'expires') end
  local now = redis.call('TIME')
  local due = string.format('%.0f', tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) + ttl)
  for _, what in ipairs({
    'heads:', 'branches:', 'tops:', 'steps:', 'roots:', 'payloads:', 'marks:', 'ids:', 'blobs:', 'blob-ids:',
  }) do
    if ttl > 0 then
      redis.call('PEXPIREAT', base .. what .. lineage, due)
    else
      redis.call('PERSIST', base .. what .. lineage)
    end
  end
end
return redis.status_reply('OK')
