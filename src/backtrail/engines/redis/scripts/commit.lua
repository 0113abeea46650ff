-- Apply one commit, or nothing: every reason to refuse it is checked before the first write.
-- KEYS[1]  the shard, "<prefix>:{<shard>}:"; every key below begins with it, so all of them are in one hash slot
-- ARGV     shard, lineage, ttl in ms (0: no expiry), fence name, fence token ("": none), lease in this shard? ("1"),
--          then five lists, each its length first:
--            swaps     thread, expected key ("": no thread), new head ("": delete), updated, home here? ("1"), pointer version
--            branches  id, record
--            rows      branch, step, row, payload
--            marks     branch, step, "1" or "0" (delete), data
--            blobs     id, data
-- Returns OK or {reason, which}.

local base, shard, lineage = KEYS[1], ARGV[1], ARGV[2]
local ttl, fence, token, lease_here = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6] == '1'
local at = 6

local function list(width)
  local length = tonumber(ARGV[at + 1])
  local first = at + 2
  at = at + 1 + length * width
  return first, at, width
end

local function own(kind) return base .. kind .. ':' .. lineage end
local function kind_of(head) return string.sub(head, 34, 33 + string.byte(head, 33)) end

local swap_first, swap_last, swap_width = list(6)
local branch_first, branch_last, branch_width = list(2)
local row_first, row_last, row_width = list(4)
local mark_first, mark_last, mark_width = list(4)
local blob_first, blob_last, blob_width = list(2)

local heads, forks, branches, tops = own('heads'), own('forks'), own('branches'), own('tops')
local steps, payloads, marks, ids, late = own('steps'), own('payloads'), own('marks'), own('ids'), own('late')
local blobs, blob_ids = own('blobs'), own('blob-ids')
local pointers = base .. 'pointers'

-- A lease in another shard was checked just before this script; here the highest token ever used counts.
if token ~= '' then
  if lease_here then
    local lease = redis.call('HGET', base .. 'leases', fence)
    if not lease or cmsgpack.unpack(lease)[2] ~= tonumber(token) then return {'fence'} end
  else
    local used = redis.call('HGET', base .. 'fences', fence)
    if used and tonumber(used) > tonumber(token) then return {'fence'} end
  end
end

local old = {}
for i = swap_first, swap_last, swap_width do
  local thread, expect, new = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local head = redis.call('HGET', heads, thread)
  if (head and string.sub(head, 1, 32) or '') ~= expect then return {'moved', thread} end
  old[thread] = head
  if expect == '' and new ~= '' then
    if ARGV[i + 4] == '1' then
      -- this shard is the thread's home: it may exist in another lineage
      local known = redis.call('HGET', pointers, thread)
      if known then
        local there, _, other = string.match(known, '^(%d+):(%d+):(.*)$')
        if other ~= lineage then
          if there ~= shard then return {'elsewhere', thread, known} end
          if redis.call('HEXISTS', base .. 'heads:' .. other, thread) == 1 then return {'moved', thread} end
        end
      end
      if thread ~= lineage and redis.call('HEXISTS', base .. 'heads:' .. thread, thread) == 1 then
        return {'moved', thread}
      end
    else
      local blocked = redis.call('GET', base .. 'blocked:' .. #thread .. ':' .. thread .. lineage)
      if blocked and tonumber(blocked) >= tonumber(ARGV[i + 5]) then return {'blocked', thread} end
    end
  end
end

local fresh = {}
for i = branch_first, branch_last, branch_width do
  local id = ARGV[i]
  -- a branch that expired with its lineage does not count as taken
  local where = redis.call('HGET', base .. 'branches', id)
  if fresh[id] or (where and redis.call('HEXISTS', base .. 'branches:' .. where, id) == 1) then
    return {'branch', id}
  end
  fresh[id] = true
end

local numbers, written = {}, {}
for i = row_first, row_last, row_width do
  local id, step = ARGV[i], ARGV[i + 1]
  if numbers[id] == nil and not fresh[id] then
    local record = redis.call('HGET', branches, id)
    if not record then return {'gone', id} end
    numbers[id] = string.match(record, '^%d+')
  end
  local n = numbers[id]
  if written[id .. step] or (n and redis.call('HEXISTS', steps, n .. ':' .. step) == 1) then
    return {'step', id, step}
  end
  written[id .. step] = true
end

-- nothing can be refused from here on

take_off_expired(base, lineage)
local before = share(base, lineage)
local bytes = 0 -- more than before

for i = branch_first, branch_last, branch_width do
  local id = ARGV[i]
  local n = redis.call('HINCRBY', base .. 'counts', 'branches', 1)
  numbers[id] = string.format('%d', n)
  redis.call('HSET', branches, id, numbers[id] .. ':' .. ARGV[i + 1])
  bytes = bytes + #ARGV[i + 1]
  redis.call('HSET', base .. 'branches', id, lineage)
end

local top = {}
for i = row_first, row_last, row_width do
  local id, step = ARGV[i], ARGV[i + 1]
  local field = numbers[id] .. ':' .. step
  redis.call('HSET', steps, field, ARGV[i + 2])
  redis.call('HSET', payloads, field, ARGV[i + 3])
  bytes = bytes + #ARGV[i + 2] + #ARGV[i + 3]
  redis.call('ZADD', ids, 0, string.sub(ARGV[i + 2], 1, 16) .. id .. step)
  top[id] = math.max(top[id] or 0, tonumber(step))
end
for id, step in pairs(top) do
  local before = tonumber(redis.call('HGET', tops, numbers[id]) or 0)
  if step > before then redis.call('HSET', tops, numbers[id], string.format('%d', step)) end
end

for i = mark_first, mark_last, mark_width do
  local id = ARGV[i]
  local n = numbers[id]
  if n == nil then
    local record = redis.call('HGET', branches, id)
    n = record and string.match(record, '^%d+')
  end
  if n then
    local field = n .. ':' .. ARGV[i + 1]
    bytes = bytes - redis.call('HSTRLEN', marks, field)
    if ARGV[i + 2] == '1' then
      redis.call('HSET', marks, field, ARGV[i + 3])
      bytes = bytes + #ARGV[i + 3]
    else
      redis.call('HDEL', marks, field)
    end
  end
end

for i = blob_first, blob_last, blob_width do
  if redis.call('HSETNX', blobs, ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', blob_ids, 0, ARGV[i])
    bytes = bytes + #ARGV[i + 1]
  end
end

for i = swap_first, swap_last, swap_width do
  local thread, new, updated = ARGV[i], ARGV[i + 2], ARGV[i + 3]
  local was, is = old[thread] and kind_of(old[thread]), new ~= '' and kind_of(new)
  bytes = bytes + #new - (was and #old[thread] or 0)
  if was and was ~= is then
    redis.call('ZREM', base .. 'names:' .. was, thread)
    forget_age(base, was, thread)
  end
  if is then
    redis.call('HSET', heads, thread, new)
    set_age(base, is, thread, updated)
    if was ~= is then
      redis.call('ZADD', base .. 'names:' .. is, 0, thread)
      redis.call('SADD', base .. 'kinds', is)
    end
    if not was then
      if thread ~= lineage then
        redis.call('HSET', pointers, thread, shard .. ':' .. ARGV[i + 5] .. ':' .. lineage)
        redis.call('ZADD', forks, 0, thread)
      elseif ARGV[i + 4] == '1' then
        redis.call('HDEL', pointers, thread)
      end
    end
  elseif was then
    redis.call('HDEL', heads, thread)
    -- if another shard is the thread's home, the pointer there is kept
    if thread ~= lineage then
      redis.call('HDEL', pointers, thread)
      redis.call('ZREM', forks, thread)
    end
  end
end

if token ~= '' and not lease_here then redis.call('HSET', base .. 'fences', fence, token) end

if bytes ~= 0 then redis.call('HINCRBY', tops, 'bytes', bytes) end
local due = false
if redis.call('EXISTS', heads, branches, blobs) == 0 then
  redis.call('ZREM', base .. 'lineages', lineage)
  redis.call('DEL', tops, late)
else
  redis.call('ZADD', base .. 'lineages', 0, lineage)
  local all = {heads, forks, branches, tops, steps, payloads, marks, ids, late, blobs, blob_ids}
  if ttl > 0 then
    -- one instant for all keys of the lineage: they expire together
    local now = redis.call('TIME')
    due = string.format('%.0f', tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) + ttl)
    redis.call('HSET', tops, 'expires', due) -- append_row.lua sees it where it looks anyway
    redis.call('HSET', base .. 'counts', 'expiring', 1)
    for _, key in ipairs(all) do redis.call('PEXPIREAT', key, due) end
  elseif redis.call('PTTL', heads) > 0 or redis.call('PTTL', branches) > 0 or redis.call('PTTL', blobs) > 0 then
    redis.call('HDEL', tops, 'expires')
    for _, key in ipairs(all) do redis.call('PERSIST', key) end
  end
end
change_sizes(base, before, share(base, lineage))
hold(base, lineage, due)
return redis.status_reply('OK')
