-- All heads of a lineage.        KEYS[1]  the shard        ARGV  lineage        Returns {thread, head, …}.

return redis.call('HGETALL', KEYS[1] .. 'heads:' .. ARGV[1])
