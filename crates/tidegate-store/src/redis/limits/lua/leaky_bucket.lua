-- x y: how far ahead the first free turn can be, where that is more than the places: a backlog kept
-- from a longer queue.
M.l = {
  load = function(s)
    local v = redis.call('GET', s.key)
    if not v then
      s.at, s.k, s.r, s.g, s.x, s.y = now, 0, 0, 0, s.a, 0
      return
    end
    local o, a, b, c
    o, a, b, c, s.at, s.k, s.r, s.g, s.x, s.y = parse(v)
    if adopt(s, o, a, b, c) then
      local numbers = {b = b, c = c, at = s.at, k = s.k, r = s.r}
      local k, r = owed(numbers, now)
      if more(k, r, s.x, s.y) then k, r = s.x, s.y end
      carry(s, k, r, b)
      s.x, s.y = s.a, 0
      if more(s.k, s.r, s.a, 0) then s.x, s.y = s.k, s.r end
      return
    end
    local k, r = owed(s, now)
    if more(k, r, s.x, s.y) then
      if bound(s, s.x, s.y) then return end
    elseif more(s.x, s.y, s.a, 0) then
      s.x, s.y = k, r
      if more(s.a, 0, k, r) then s.x, s.y = s.a, 0 end
    end
    s.k, s.r, s.at = k, r, now
  end,
  show = bucket_show,
  test = bucket_test,
  take = bucket_take,
  save = function(s)
    local v = pack(s.o, s.a, s.b, s.c, s.at, s.k, s.r, s.g, s.x, s.y)
    redis.call('SET', s.key, v, 'PX', life((s.k + 1) * (s.b / s.c)))
  end,
}
