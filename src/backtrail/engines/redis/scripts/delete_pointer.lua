-- At a thread's home: delete a pointer, if it is still this one, so that the thread can be created at home.
-- KEYS[1]  the home's shard        ARGV  thread, pointer

if redis.call('HGET', KEYS[1] .. 'pointers', ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1] .. 'pointers', ARGV[1])
end
return 1
