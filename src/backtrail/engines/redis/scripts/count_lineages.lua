-- Add up what some lineages have, by looking at them.        KEYS[1]  the shard        ARGV  lineage, lineage, …
-- Returns {threads, branches, rows, blobs, bytes}.

local total = {0, 0, 0, 0, 0}
for _, lineage in ipairs(ARGV) do
  for i, number in ipairs(share(KEYS[1], lineage)) do total[i] = total[i] + number end
end
return total
