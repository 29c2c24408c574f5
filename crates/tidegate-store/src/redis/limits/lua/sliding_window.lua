-- a units in about any b microseconds: this aligned window's count and a part of the last one's.
--@load
s.start, s.cur, s.prev, s.g, s.old = now - fmod(now, s.b), 0, 0, 0, 0
local v = redis.call('GET', s.key)
if v then
  local o, a, start, cur, prev, g = parse(v)
  if o == s.o and a == s.a and start <= s.start then
    s.g = g
    if start == s.start then
      s.cur, s.prev = cur, prev
    elseif s.start - start <= s.b then
      s.prev = cur
    end
  else
    rare_s(s, o, a, start, cur, prev, g)
  end
  -- What the last window still counts for, rounded up.
  if s.prev > 0 then
    local left = s.b
    if now > s.start then left = s.b - (now - s.start) end
    local u = s.prev * left
    if u < WHOLE then
      local part = fmod(u, s.b)
      s.old = (u - part) / s.b
      if part > 0 then s.old = s.old + 1 end
    else
      rare_weight(s, left)
    end
  end
end
--@show
out[#out + 1] = s.start
out[#out + 1] = s.cur
out[#out + 1] = s.prev
--@test
fits = s.cur + s.old + cost <= s.a
--@take
s.cur = s.cur + cost
--@save
local v = pack(s.o, s.a, s.start, s.cur, s.prev, s.g)
redis.call('SET', s.key, v, 'PX', life(s.start + 2 * s.b - now))
