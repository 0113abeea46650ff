-- Parts of the steps first..last of a branch that exist, ascending.
-- KEYS[1]  the shard        ARGV  lineage, branch, first, last, newest, marked,
--                                 then the parts: rows, lights, payloads, marks
-- newest: only the last so many of them, or "" for all; marked "1": only those that have a mark.
-- A light is a row without its root, which history does not need.
-- Returns {step, part, part, …, step, …}; a missing part is false.

local base, lineage = KEYS[1], ARGV[1]
local record = redis.call('HGET', base .. 'branches:' .. lineage, ARGV[2])
if not record then return {} end
local n = string.match(record, '^%d+')
local first = math.max(tonumber(ARGV[3]), 1)
local last = math.min(tonumber(ARGV[4]), tonumber(redis.call('HGET', base .. 'tops:' .. lineage, n) or 0))
local found, size = {}, 0
local chunk = 1000 -- a call takes a few thousand arguments at most
local count, name = last - first + 1, string.format
local newest, marked = tonumber(ARGV[5]), ARGV[6] == '1'
local steps -- the steps in question, if they are few of a long range: most of it was swept, or its end is made up
if marked or (count > chunk and count > 4 * redis.call('HLEN', base .. 'steps:' .. lineage)) then
  steps = {}
  for _, field in ipairs(redis.call('HKEYS', base .. (marked and 'marks:' or 'steps:') .. lineage)) do
    local step = tonumber(string.match(field, '^' .. n .. ':(%d+)$'))
    if step and step >= first and step <= last then steps[#steps + 1] = step end
  end
  table.sort(steps)
  count = #steps
end
if newest then -- look from the end for as many as exist
  local back = {}
  for high = count, 1, -math.max(newest, 16) do
    local fields, numbers = {}, {}
    for i = high, math.max(high - math.max(newest, 16) + 1, 1), -1 do
      numbers[#numbers + 1] = steps and steps[i] or first + i - 1
      fields[#fields + 1] = n .. ':' .. name('%d', numbers[#numbers])
    end
    local there = redis.call('HMGET', base .. 'steps:' .. lineage, unpack(fields))
    for k = 1, #fields do
      if there[k] and #back < newest then back[#back + 1] = numbers[k] end
    end
    if #back == newest then break end
  end
  steps, count = {}, #back
  for i = 1, count do steps[i] = back[count - i + 1] end
end
for low = 1, count, chunk do
  local fields, numbers = {}, {}
  for i = low, math.min(low + chunk - 1, count) do
    numbers[#numbers + 1] = steps and steps[i] or first + i - 1
    fields[#fields + 1] = n .. ':' .. name('%d', numbers[#numbers])
  end
  local there = redis.call('HMGET', base .. 'steps:' .. lineage, unpack(fields))
  local parts = {}
  for i = 7, #ARGV do
    if ARGV[i] == 'rows' then
      parts[#parts + 1] = there
    elseif ARGV[i] == 'lights' then
      local lights = {}
      for k = 1, #fields do
        if there[k] then
          local a, b, c, d = string.byte(there[k], 33, 36)
          lights[k] = string.sub(there[k], 1, 36 + ((a * 256 + b) * 256 + c) * 256 + d)
        end
      end
      parts[#parts + 1] = lights
    else
      parts[#parts + 1] = redis.call('HMGET', base .. ARGV[i] .. ':' .. lineage, unpack(fields))
    end
  end
  for k = 1, #fields do
    if there[k] then
      size = size + 1
      found[size] = numbers[k]
      for _, part in ipairs(parts) do
        size = size + 1
        found[size] = part[k]
      end
    end
  end
end
return found
