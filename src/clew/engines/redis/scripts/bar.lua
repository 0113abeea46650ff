-- Before a pointer is turned away from a lineage: nobody who relies on that pointer may begin the thread there any more.
-- KEYS[1]  the lineage's shard        ARGV  thread, lineage, version of the pointer
-- Returns 0 if the thread exists there, else 1. The bar outlasts any call that could still be on its way.

if redis.call('HEXISTS', KEYS[1] .. 'heads:' .. ARGV[2], ARGV[1]) == 1 then return 0 end
redis.call('SET', KEYS[1] .. 'bar:' .. #ARGV[1] .. ':' .. ARGV[1] .. ARGV[2], ARGV[3], 'EX', 3600)
return 1
