-- a units in each window of b microseconds, aligned to the epoch.
--@load
s.start, s.used, s.g = now - fmod(now, s.b), 0, 0
local v = redis.call('GET', s.key)
if v then
  local o, a, start, used, g = parse(v)
  if o == s.o and a == s.a and start <= s.start then
    s.g = g
    if start == s.start then s.used = used end
  else
    rare_f(s, o, a, start, used, g)
  end
end
--@show
out[#out + 1] = s.start
out[#out + 1] = s.used
--@test
fits = s.used + cost <= s.a
--@take
s.used = s.used + cost
--@save
redis.call('SET', s.key, pack(s.o, s.a, s.start, s.used, s.g), 'PX', life(s.start + s.b - now))
