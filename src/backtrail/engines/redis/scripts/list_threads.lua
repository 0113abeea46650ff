-- Heads of one shard, by name or by age, from the sorted sets of one kind or of all.
-- KEYS[1]  the shard
-- ARGV     kind ("": all), prefix, how many of each kind, shard,
--          "name", lower bound for ZRANGEBYLEX, upper bound
--       or "age", updated and id that all must come after ("", "": from the newest on)
-- Returns {thread, head, …}. Threads that expired with their lineage are removed from the sets on the way.

local base, prefix, limit, shard = KEYS[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local chunk = 500
local found = {}
local kinds = ARGV[1] ~= '' and {ARGV[1]} or redis.call('SMEMBERS', base .. 'kinds')

-- by bytes: the server's own comparison of strings follows its locale
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function alive(thread)
  local known = redis.call('HGET', base .. 'pointers', thread)
  local lineage = known and string.match(known, '^%d+:%d+:(.*)$') or thread
  local head = redis.call('HGET', base .. 'heads:' .. lineage, thread)
  -- a thread may have been created at home later, so that its old pointer is unused
  return head or (lineage ~= thread and redis.call('HGET', base .. 'heads:' .. thread, thread))
end

for _, kind in ipairs(kinds) do
  local count, offset, more = 0, 0, true
  local ages = ages_in_namespace(base, kind, prefix) or base .. 'ages:' .. kind
  local gone = {}
  while more and count < limit do
    local threads = {}
    local seen
    if ARGV[5] == 'name' then
      threads = redis.call('ZRANGEBYLEX', base .. 'names:' .. kind, ARGV[6], ARGV[7], 'LIMIT', offset, chunk)
      seen = #threads
    else
      local newest = ARGV[6] == '' and '+inf' or ARGV[6]
      local page = redis.call('ZREVRANGEBYSCORE', ages, newest, '-inf', 'WITHSCORES', 'LIMIT', offset, chunk)
      seen = #page / 2
      for i = 1, #page, 2 do
        local later = ARGV[6] ~= '' and tonumber(page[i + 1]) == tonumber(ARGV[6]) and not less(page[i], ARGV[7])
        if not later and string.sub(page[i], 1, #prefix) == prefix then threads[#threads + 1] = page[i] end
      end
    end
    for _, thread in ipairs(threads) do
      if count == limit then break end
      local head = alive(thread)
      if head then
        count = count + 1
        found[#found + 1] = thread
        found[#found + 1] = head
      else
        gone[#gone + 1] = thread
      end
    end
    offset = offset + seen
    more = seen == chunk
  end
  for _, thread in ipairs(gone) do
    redis.call('ZREM', base .. 'names:' .. kind, thread)
    forget_age(base, kind, thread)
    local known = redis.call('HGET', base .. 'pointers', thread)
    if known and string.match(known, '^%d+') == shard then redis.call('HDEL', base .. 'pointers', thread) end
  end
end
return found
