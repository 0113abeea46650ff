-- Rows of a lineage by a range of ids.        KEYS[1]  the shard
-- ARGV  lineage, lower and upper bound for ZRANGEBYLEX, how many        Returns {id .. branch .. step, …}.

return redis.call('ZRANGEBYLEX', KEYS[1] .. 'ids:' .. ARGV[1], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
