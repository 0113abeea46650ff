-- At a thread's home: set the pointer to the lineage (in another shard) in which the thread is about to be created.
-- KEYS[1]  the home's shard
-- ARGV     home's shard number, thread, that shard's number, lineage, "1" for a new version, pointer to replace ("": none)
-- Returns {"ok", version}, {"moved"} if the thread exists here, or {"elsewhere", pointer} if it may exist in a third shard.

local base, home, thread, shard, lineage = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HEXISTS', base .. 'heads:' .. thread, thread) == 1 then return {'moved'} end
local known = redis.call('HGET', base .. 'pointers', thread)
if known and known ~= ARGV[6] then
  local there, version, other = string.match(known, '^(%d+):(%d+):(.*)$')
  if there == shard and other == lineage then
    if ARGV[5] ~= '1' then return {'ok', version} end
  elseif there == home then
    if redis.call('HEXISTS', base .. 'heads:' .. other, thread) == 1 then return {'moved'} end
  else
    return {'elsewhere', known}
  end
end
local version = string.format('%d', redis.call('HINCRBY', base .. 'counts', 'pointers', 1))
redis.call('HSET', base .. 'pointers', thread, shard .. ':' .. version .. ':' .. lineage)
return {'ok', version}
