-- Delete what a sweep found unreachable, if the heads of the lineage are still those that it read.
-- KEYS[1]  the shard        ARGV  lineage, then five lists, each its length first:
--   expected heads: thread, key · rows: branch, step · bodies: branch, step · branches: id · blobs: id
-- Returns 1, or 0 if a head moved, appeared or disappeared.

local base, lineage, at = KEYS[1], ARGV[1], 1

local function list(width)
  local length = tonumber(ARGV[at + 1])
  local first = at + 2
  at = at + 1 + length * width
  return first, at, width
end

local function own(kind) return base .. kind .. ':' .. lineage end

local heads, branches, tops = own('heads'), own('branches'), own('tops')
local steps, payloads, marks, ids, late = own('steps'), own('payloads'), own('marks'), own('ids'), own('late')
local blobs, blob_ids = own('blobs'), own('blob-ids')

local first, last, width = list(2)
if redis.call('HLEN', heads) ~= (last - first + 1) / width then return 0 end
for i = first, last, width do
  local head = redis.call('HGET', heads, ARGV[i])
  if not head or string.sub(head, 1, 32) ~= ARGV[i + 1] then return 0 end
end

take_off_expired(base, lineage)
local before = share(base, lineage)
local bytes = 0 -- fewer than before

local function number(id)
  local record = redis.call('HGET', branches, id)
  return record and string.match(record, '^%d+')
end

local function remove(n, id, step)
  local field = n .. ':' .. step
  local row = redis.call('HGET', steps, field)
  bytes = bytes + redis.call('HSTRLEN', marks, field)
  if row then
    bytes = bytes + #row + redis.call('HSTRLEN', payloads, field)
    redis.call('HDEL', steps, field)
    redis.call('HDEL', payloads, field)
    redis.call('ZREM', ids, string.sub(row, 1, 16) .. id .. step)
  end
  redis.call('HDEL', marks, field)
end

first, last, width = list(2)
for i = first, last, width do
  local n = number(ARGV[i])
  if n then remove(n, ARGV[i], ARGV[i + 1]) end
end

first, last, width = list(2)
for i = first, last, width do
  local n = number(ARGV[i])
  local field = n and n .. ':' .. ARGV[i + 1]
  local row = n and redis.call('HGET', steps, field)
  if row then
    -- in this order: a full server lets a script continue once it has begun to write
    bytes = bytes + redis.call('HSTRLEN', payloads, field)
    redis.call('HDEL', payloads, field)
    local a, b, c, d = string.byte(row, 33, 36)
    local light = string.sub(row, 1, 36 + ((a * 256 + b) * 256 + c) * 256 + d)
    redis.call('HSET', steps, field, light)
    bytes = bytes + #row - #light
  end
end

first, last, width = list(1)
for i = first, last, width do
  local id = ARGV[i]
  local n = number(id)
  if n then
    for step = 1, tonumber(redis.call('HGET', tops, n) or 0) do remove(n, id, string.format('%d', step)) end
    redis.call('HDEL', tops, n, n .. ':late')
    redis.call('SREM', late, id)
    bytes = bytes + redis.call('HSTRLEN', branches, id) - #n - 1
    redis.call('HDEL', branches, id)
    redis.call('HDEL', base .. 'branches', id)
  end
end

first, last, width = list(1)
for i = first, last, width do
  bytes = bytes + redis.call('HSTRLEN', blobs, ARGV[i])
  redis.call('HDEL', blobs, ARGV[i])
  redis.call('ZREM', blob_ids, ARGV[i])
end

local due = redis.call('HGET', tops, 'expires')
if redis.call('EXISTS', heads, branches, blobs) == 0 then
  redis.call('ZREM', base .. 'lineages', lineage)
  redis.call('DEL', tops, late)
  due = false
elseif bytes ~= 0 then
  redis.call('HINCRBY', tops, 'bytes', -bytes)
end
change_sizes(base, before, share(base, lineage))
hold(base, lineage, due)
return 1
