-- The heads of a lineage, or a page of them by thread.
-- KEYS[1]  the shard        ARGV  lineage; for a page: lower bound for ZRANGEBYLEX, how many
-- Returns {thread, head, …}. A page has the thread that the lineage began with in any case: it is not among the forks.

local heads = KEYS[1] .. 'heads:' .. ARGV[1]
if not ARGV[2] then return redis.call('HGETALL', heads) end
local names = redis.call('ZRANGEBYLEX', KEYS[1] .. 'forks:' .. ARGV[1], ARGV[2], '+', 'LIMIT', 0, ARGV[3])
names[#names + 1] = ARGV[1]
local found = {}
for _, thread in ipairs(names) do
  local head = redis.call('HGET', heads, thread)
  if head then
    found[#found + 1] = thread
    found[#found + 1] = head
  end
end
return found
