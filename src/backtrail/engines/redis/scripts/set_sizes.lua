-- Correct the sizes of a shard, unless they have changed meanwhile.
-- KEYS[1]  the shard        ARGV  the five sizes as they were read, then the correct ones        Returns 1, or 0.

local key = KEYS[1] .. 'sizes'
for i, what in ipairs(SIZES) do
  if tonumber(redis.call('HGET', key, what) or 0) ~= tonumber(ARGV[i]) then return 0 end
end
for i, what in ipairs(SIZES) do redis.call('HSET', key, what, ARGV[#SIZES + i]) end
return 1
