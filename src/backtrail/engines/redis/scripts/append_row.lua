-- The usual commit: one row after the head, and the head's move to it. Does the same as commit.lua in less time: the
-- row's id is not added to the index of ids. Instead the branch is recorded as late, and locate.lua adds the ids later.
-- KEYS[1]  the shard
-- ARGV     lineage, ttl in ms (0: no expiry), thread, expected key, new head, updated, branch, step, row, payload;
--          if it relies on a lease, which is in this shard: its name and token
-- Returns OK, {reason, which}, or {"more"} if the commit needs commit.lua.

local call, sub, byte = redis.call, string.sub, string.byte
local base, lineage, thread, new, id, step = KEYS[1], ARGV[1], ARGV[3], ARGV[5], ARGV[7], ARGV[8]
if ARGV[11] then
  local lease = call('HGET', base .. 'leases', ARGV[11])
  if not lease or cmsgpack.unpack(lease)[2] ~= tonumber(ARGV[12]) then return {'fence'} end
end
local heads = base .. 'heads:' .. lineage
local head = call('HGET', heads, thread)
if not head or sub(head, 1, 32) ~= ARGV[4] then return {'moved', thread} end
local kind = sub(new, 34, 33 + byte(new, 33))
if sub(head, 34, 33 + byte(head, 33)) ~= kind then return {'more'} end
local record = call('HGET', base .. 'branches:' .. lineage, id)
if not record then return {'gone', id} end
local n = string.match(record, '^%d+')
local field = n .. ':' .. step
if call('HSETNX', base .. 'steps:' .. lineage, field, ARGV[9]) == 0 then return {'step', id, step} end

call('HSET', base .. 'payloads:' .. lineage, field, ARGV[10])
local tops, late = base .. 'tops:' .. lineage, n .. ':late'
local known = call('HMGET', tops, n, late, 'expires')
if not known[1] or tonumber(known[1]) < tonumber(step) then call('HSET', tops, n, step) end
if not known[2] then
  call('HSET', tops, late, step)
  call('SADD', base .. 'late:' .. lineage, id)
elseif tonumber(known[2]) > tonumber(step) then
  call('HSET', tops, late, step)
end
call('HSET', heads, thread, new)
set_age(base, kind, thread, ARGV[6])

local bytes = #ARGV[9] + #ARGV[10] + #new - #head
call('HINCRBY', tops, 'bytes', bytes)
call('HINCRBY', base .. 'sizes', 'bytes', bytes)
call('HINCRBY', base .. 'sizes', 'rows', 1)

local ttl = tonumber(ARGV[2])
if ttl > 0 or known[3] then
  local now = call('TIME')
  local due = string.format('%.0f', tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) + ttl)
  if ttl > 0 then
    call('HSET', tops, 'expires', due)
    call('HSET', base .. 'counts', 'expiring', 1)
  else
    call('HDEL', tops, 'expires')
  end
  for _, what in ipairs({
    'heads:', 'forks:', 'branches:', 'tops:', 'steps:', 'payloads:', 'marks:', 'ids:', 'late:', 'blobs:', 'blob-ids:',
  }) do
    if ttl > 0 then
      call('PEXPIREAT', base .. what .. lineage, due)
    else
      call('PERSIST', base .. what .. lineage)
    end
  end
  hold(base, lineage, ttl > 0 and due)
end
return redis.status_reply('OK')
