--@load
s.at, s.k, s.r, s.g = now, 0, 0, 0
local v = redis.call('GET', s.key)
if v then
  local o, a, b, c
  o, a, b, c, s.at, s.k, s.r, s.g = parse(v)
  local due = (now - s.at) * c
  if o == s.o and a == s.a and b == s.b and c == s.c and due >= 0 and due < WHOLE then
    --@pay
  else
    rare_t(s, o, a, b, c)
  end
end
--@save
redis.call('SET', s.key, pack(s.o, s.a, s.b, s.c, s.at, s.k, s.r, s.g), 'PX', life((s.k + 1) * (s.b / s.c)))
