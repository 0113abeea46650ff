-- Count what some lineages hold.        KEYS[1]  the shard        ARGV  lineage, lineage, …
-- Returns {threads, branches, rows, blobs, bytes}.

local threads, branches, rows, blobs, bytes = 0, 0, 0, 0, 0
for _, name in ipairs(ARGV) do
  local function key(kind) return KEYS[1] .. kind .. ':' .. name end
  threads = threads + redis.call('HLEN', key('heads'))
  branches = branches + redis.call('HLEN', key('branches'))
  rows = rows + redis.call('HLEN', key('steps'))
  blobs = blobs + redis.call('HLEN', key('blobs'))
  for _, kind in ipairs({
    'heads', 'branches', 'tops', 'steps', 'payloads', 'marks', 'ids', 'late', 'blobs', 'blob-ids',
  }) do
    bytes = bytes + (redis.call('MEMORY', 'USAGE', key(kind)) or 0)
  end
end
return {threads, branches, rows, blobs, bytes}
