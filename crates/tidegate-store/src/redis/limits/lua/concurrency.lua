-- At most a units in flight; a permit of a silent holder ends after b microseconds. A sorted set: each
-- permit, as its cost and id, by when it ends; and as the last member the version and the sum.
local function cost_of(permit)
  return string.match(permit, '^%d+') + 0
end

M.c = {
  load = function(s)
    s.used, s.n, s.span = 0, 0, s.b
    local tail = redis.call('ZRANGE', s.key, -2, -1, 'WITHSCORES')
    s.head = tail[#tail - 1]
    if not s.head then return end
    local o, a, span
    o, a, s.used, span = parse(s.head)
    if adopt(s, o, a, s.b, s.c) then s.dirty = true end
    if span > s.span then s.span = span end
    if #tail == 4 and tail[2] + 0 > now + s.span + REORDER then
      -- The clock was set back: nobody is believed alive for longer than a permit lasts.
      for _, permit in ipairs(redis.call('ZRANGEBYSCORE', s.key, '(' .. string.format('%.0f', now + s.span), '(inf')) do
        redis.call('ZADD', s.key, now + s.span, permit)
      end
      s.dirty = true
    end
    for _, permit in ipairs(redis.call('ZRANGEBYSCORE', s.key, '-inf', now)) do
      s.used = s.used - cost_of(permit)
      s.ended = true
    end
  end,
  show = function(s, out) out[#out + 1] = s.used end,
  -- A permit that is already held is held once.
  test = function(s, cost, out, id)
    s.again = false
    if cost > 0 and s.head and id then
      local ends = redis.call('ZSCORE', s.key, string.format('%.0f:', cost) .. id)
      s.again = ends and ends + 0 > now
    end
    out[#out + 1] = s.again and 1 or 0
    return s.again or s.used + cost <= s.a
  end,
  take = function(s, cost, id)
    s.permits = s.permits or {}
    s.permits[#s.permits + 1] = now + s.b
    s.permits[#s.permits + 1] = string.format('%.0f:', cost) .. id
    if not s.again then s.used = s.used + cost end
  end,
  save = function(s)
    if s.head then
      if s.ended then redis.call('ZREMRANGEBYSCORE', s.key, '-inf', now) end
      redis.call('ZREM', s.key, s.head)
    end
    redis.call('ZADD', s.key, 'inf', pack(s.o, s.a, s.used, s.span), unpack(s.permits or {}))
    redis.call('PEXPIRE', s.key, life(s.span))
  end,
}
