-- a units in about any b microseconds: this aligned window's count and a part of the last one's.
M.s = {
  load = function(s)
    s.start, s.cur, s.prev, s.g, s.old = now - fmod(now, s.b), 0, 0, 0, 0
    local v = redis.call('GET', s.key)
    if not v then return end
    local o, a, start, cur, prev, g = parse(v)
    if adopt(s, o, a, s.b, s.c) then s.dirty = true end
    s.g = g
    if start < s.start then
      if s.start - start <= s.b then s.prev = cur end
    else
      s.cur, s.prev = cur, prev
      if start > s.start then
        if start - now <= REORDER then s.start = start else s.g, s.dirty = g + 1, true end
      end
    end
    -- What the last window still counts for, rounded up.
    if s.prev > 0 then
      local left = s.b
      if now > s.start then left = s.b - (now - s.start) end
      local q, r = muldiv(s.prev, left, s.b)
      if r > 0 then q = q + 1 end
      s.old = q
    end
  end,
  show = function(s, out)
    out[#out + 1] = s.start
    out[#out + 1] = s.cur
    out[#out + 1] = s.prev
  end,
  test = function(s, cost) return s.cur + s.old + cost <= s.a end,
  take = function(s, cost) s.cur = s.cur + cost end,
  save = function(s)
    local v = pack(s.o, s.a, s.start, s.cur, s.prev, s.g)
    redis.call('SET', s.key, v, 'PX', life(s.start + 2 * s.b - now))
  end,
}
