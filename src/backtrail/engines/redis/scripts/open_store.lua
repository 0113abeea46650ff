-- Agree on the format and the number of shards: the first client decides.
-- KEYS[1]  shard 0        ARGV  format, shards        Returns {format, shards} as they are now.

local key = KEYS[1] .. 'store'
redis.call('HSETNX', key, 'format', ARGV[1])
redis.call('HSETNX', key, 'shards', ARGV[2])
return redis.call('HMGET', key, 'format', 'shards')
