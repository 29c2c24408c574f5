-- x y: how far ahead the first free turn can be, where that is more than the places: a backlog kept
-- from a longer queue.
--@load
s.at, s.k, s.r, s.g, s.x, s.y = now, 0, 0, 0, s.a, 0
local v = redis.call('GET', s.key)
if v then
  local o, a, b, c
  o, a, b, c, s.at, s.k, s.r, s.g, s.x, s.y = parse(v)
  local due = (now - s.at) * c
  if o == s.o and a == s.a and b == s.b and c == s.c and due >= 0 and due < WHOLE and s.x == a and s.y == 0 then
    --@pay
  else
    rare_l(s, o, a, b, c)
  end
end
--@save
local v = pack(s.o, s.a, s.b, s.c, s.at, s.k, s.r, s.g, s.x, s.y)
redis.call('SET', s.key, v, 'PX', life((s.k + 1) * (s.b / s.c)))
