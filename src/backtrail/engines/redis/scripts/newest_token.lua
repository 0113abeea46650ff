-- The newest token of a lease, as text.        KEYS[1]  the shard        ARGV  name        Returns "0" if there is none.

local packed = redis.call('HGET', KEYS[1] .. 'leases', ARGV[1])
return packed and string.format('%.0f', cmsgpack.unpack(packed)[2]) or '0'
