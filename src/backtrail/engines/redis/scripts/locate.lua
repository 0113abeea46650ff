-- Rows of a lineage by a range of ids.        KEYS[1]  the shard
-- ARGV  lineage, lowest id, highest id, how many        Returns {id .. branch .. step, …}, or MORE: ask again.
--
-- append_row.lua leaves ids out of the index. They are added here, some thousand rows at a time. A full server refuses
-- that. Then the rows themselves are searched, at every call.

local base, lineage, low, high, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local function own(kind) return base .. kind .. ':' .. lineage end
local steps, tops, ids, late = own('steps'), own('tops'), own('ids'), own('late')
local chunk, left, full, indexed = 1000, 5, false, false

-- byte by byte: Lua's own comparison follows the server's locale
local function before(one, other)
  for i = 1, 16 do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return false
end

local found, seen = {}, {}
local function take(member)
  if not seen[member] and #found < limit then
    seen[member] = true
    found[#found + 1] = member
  end
end

for _, id in ipairs(redis.call('SMEMBERS', late)) do
  local record = redis.call('HGET', own('branches'), id)
  local n = record and string.match(record, '^%d+') or ''
  local known = redis.call('HMGET', tops, n, n .. ':late')
  local last = tonumber(known[1] or 0)
  for first = tonumber(known[2] or 1), last, chunk do
    if left == 0 then
      redis.call('HSET', tops, n .. ':late', string.format('%d', first))
      return redis.status_reply('MORE')
    end
    local numbers, fields, members, index = {}, {}, {}, {}
    for step = first, math.min(first + chunk - 1, last) do
      numbers[#numbers + 1] = string.format('%d', step)
      fields[#fields + 1] = n .. ':' .. numbers[#numbers]
    end
    local rows = redis.call('HMGET', steps, unpack(fields))
    for k = 1, #fields do
      if rows[k] then
        members[#members + 1] = string.sub(rows[k], 1, 16) .. id .. numbers[k]
        index[#index + 1] = 0
        index[#index + 1] = members[#members]
      end
    end
    if not full and #index > 0 then
      local done = redis.pcall('ZADD', ids, unpack(index))
      full = type(done) == 'table'
      indexed = indexed or not full
      left = left - 1
    end
    if full then
      left = -1
      for _, member in ipairs(members) do
        if not before(member, low) and not before(high, member) then take(member) end
      end
    end
  end
  if not full then
    redis.call('HDEL', tops, n .. ':late')
    redis.call('SREM', late, id)
  end
end

local due = indexed and redis.call('HGET', tops, 'expires')
if due then redis.call('PEXPIREAT', ids, due) end
local top = '(' .. high .. string.rep('\255', 17)
for _, member in ipairs(redis.call('ZRANGEBYLEX', ids, '[' .. low, top, 'LIMIT', 0, ARGV[4])) do take(member) end
return found
