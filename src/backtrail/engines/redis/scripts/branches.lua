-- All branches of a lineage.        KEYS[1]  the shard        ARGV  lineage        Returns {id, "number:record", …}.

return redis.call('HGETALL', KEYS[1] .. 'branches:' .. ARGV[1])
