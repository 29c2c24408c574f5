-- An instance's sign of life, and whether the data is what it was.
--
-- KEYS: instances, by name when each was last heard of; the epoch, with how many signs of life it has seen.
-- ARGV: the instance, its life in microseconds, the epoch and the count that it saw last or two empty texts,
-- and the id of an epoch to begin if need be.
-- Reply: now, how many instances live, how many of them come before this one by name, the epoch, its begin,
-- whether an earlier one was lost, and the count.
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now))
local life, count, rank = ARGV[2] + 0, 0, 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local age = now - all[i + 1]
  if age > life or age < -life then
    redis.call('HDEL', KEYS[1], all[i])
  else
    count = count + 1
    if all[i] < ARGV[1] then rank = rank + 1 end
  end
end
redis.call('PEXPIRE', KEYS[1], math.ceil(life / 1000) + 1000)

local was = redis.call('HMGET', KEYS[2], 'id', 'lost')
local seen = redis.call('HINCRBY', KEYS[2], 'seen', 1)
local knew = ARGV[3] ~= ''
-- A failover that lost writes has forgotten signs of life that this instance gave.
if not was[1] or (was[1] == ARGV[3] and seen <= ARGV[4] + 0) then
  redis.call('HSET', KEYS[2], 'id', ARGV[5], 'since', string.format('%.0f', now), 'lost', knew and 1 or 0)
elseif knew and was[1] ~= ARGV[3] and was[2] == '0' then
  redis.call('HSET', KEYS[2], 'lost', 1)
end
redis.call('EXPIRE', KEYS[2], 34560000)
local epoch = redis.call('HMGET', KEYS[2], 'id', 'since', 'lost')
return {now, count, rank, epoch[1], epoch[2] + 0, epoch[3] + 0, seen}
