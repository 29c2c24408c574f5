M.t = {
  load = function(s)
    local v = redis.call('GET', s.key)
    if not v then
      s.at, s.k, s.r, s.g = now, 0, 0, 0
      return
    end
    local o, a, b, c
    o, a, b, c, s.at, s.k, s.r, s.g = parse(v)
    if adopt(s, o, a, b, c) then
      local numbers = {b = b, c = c, at = s.at, k = s.k, r = s.r}
      local k, r = owed(numbers, now)
      if more(k, r, a, 0) then k, r = a, 0 end
      carry(s, k, r, b)
      if more(s.k, s.r, s.a, 0) then s.k, s.r = s.a, 0 end
      return
    end
    local k, r = owed(s, now)
    if more(k, r, s.a, 0) and bound(s, s.a, 0) then return end
    s.k, s.r, s.at = k, r, now
  end,
  show = bucket_show,
  test = bucket_test,
  take = bucket_take,
  save = function(s)
    redis.call('SET', s.key, pack(s.o, s.a, s.b, s.c, s.at, s.k, s.r, s.g), 'PX', life((s.k + 1) * (s.b / s.c)))
  end,
}
