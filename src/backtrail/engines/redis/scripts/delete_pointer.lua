-- At a thread's home: forget a pointer, if it is still this one, so that the thread can begin at home again.
-- KEYS[1]  the home's shard        ARGV  thread, pointer

if redis.call('HGET', KEYS[1] .. 'pointers', ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1] .. 'pointers', ARGV[1])
end
return 1
