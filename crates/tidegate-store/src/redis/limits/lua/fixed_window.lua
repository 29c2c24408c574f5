-- a units in each window of b microseconds, aligned to the epoch.
M.f = {
  load = function(s)
    s.start, s.used, s.g = now - fmod(now, s.b), 0, 0
    local v = redis.call('GET', s.key)
    if not v then return end
    local o, a, start, used, g = parse(v)
    if adopt(s, o, a, s.b, s.c) then s.dirty = true end
    s.g = g
    if start < s.start then return end
    s.used = used
    if start > s.start then
      if start - now <= REORDER then s.start = start else s.g, s.dirty = g + 1, true end
    end
  end,
  show = function(s, out)
    out[#out + 1] = s.start
    out[#out + 1] = s.used
  end,
  test = function(s, cost) return s.used + cost <= s.a end,
  take = function(s, cost) s.used = s.used + cost end,
  save = function(s)
    redis.call('SET', s.key, pack(s.o, s.a, s.start, s.used, s.g), 'PX', life(s.start + s.b - now))
  end,
}
