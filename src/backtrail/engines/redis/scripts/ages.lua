-- The sorted sets that have threads by the time of their last change: one for each kind, and one for each kind in each
-- namespace, so that a page of a namespace is found among many newer threads of others. This text comes before that of
-- each script that uses them.

-- The set of a kind in the namespace of a thread or prefix; nil if it is in none. Names in a namespace begin with the last
-- code point of Unicode; the first \31 ends the namespace.
local function ages_in_namespace(base, kind, name)
  local namespace = string.sub(name, 1, 4) == '\244\143\191\191' and string.match(name, '^(.-)\31')
  return namespace and base .. 'ages-in:' .. #kind .. ':' .. kind .. namespace
end

local function set_age(base, kind, thread, updated)
  redis.call('ZADD', base .. 'ages:' .. kind, updated, thread)
  local also = ages_in_namespace(base, kind, thread)
  if also then redis.call('ZADD', also, updated, thread) end
end

local function forget_age(base, kind, thread)
  redis.call('ZREM', base .. 'ages:' .. kind, thread)
  local also = ages_in_namespace(base, kind, thread)
  if also then redis.call('ZREM', also, thread) end
end

