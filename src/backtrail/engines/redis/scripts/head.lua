-- The head of a thread and, if requested, the row it points at, without its payload.
-- KEYS[1]  the shard        ARGV  thread, lineage ("": found in this shard), "1" for the row too
-- Returns {pointer or "", head or "", row or false, mark or false}.

local base, thread, lineage = KEYS[1], ARGV[1], ARGV[2]
local known = ''
if lineage == '' then
  known = redis.call('HGET', base .. 'pointers', thread) or ''
  lineage = known ~= '' and string.match(known, '^%d+:%d+:(.*)$') or thread
end
local head = redis.call('HGET', base .. 'heads:' .. lineage, thread)
if not head then return {known, ''} end
if ARGV[3] ~= '1' then return {known, head} end
local record = redis.call('HGET', base .. 'branches:' .. lineage, string.sub(head, 1, 16))
local n = record and string.match(record, '^%d+')
if not n then return {known, head, false, false} end
-- the step is the second part of the key: eight bytes, big-endian
local step = 0
for i = 17, 24 do step = step * 256 + string.byte(head, i) end
local field = n .. ':' .. string.format('%d', step)
return {
  known,
  head,
  redis.call('HGET', base .. 'steps:' .. lineage, field),
  redis.call('HGET', base .. 'marks:' .. lineage, field),
}
