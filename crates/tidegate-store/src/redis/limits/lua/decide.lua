-- Decides calls in turn, each on all its limits or on none.
--
-- KEYS: the limits' counters, then with ids = 2 the limits' reservations.
-- ARGV: how many limits; ids (0 none, 1 each call has one, 2 and is remembered, so that it can be given
-- back); for each limit kind, mode, ordinal, a, b, c; for each call its id, if any, and a cost for each
-- limit.
-- Reply: now; for each call 1 or 0; for each limit 0, or 1 and the newer numbers it is decided by, and
-- its state before the first call; then what single tests added.

-- Remembers what a call was charged. The oldest is forgotten first, and then not given back.
local function hold(s, id)
  if s.m == M.c then return end
  local at = s.at or now
  if s.start and s.start > now then at = s.start end
  redis.call('ZADD', s.held, at, string.format('%.0f:%d:', s.cost, s.g or 0) .. id)
  if redis.call('ZCARD', s.held) > 1024 then redis.call('ZREMRANGEBYRANK', s.held, 0, 0) end
  redis.call('PEXPIRE', s.held, 10000)
end

local limits, ids = A[1] + 0, A[2]
local S, out, said, b = {}, {now, ''}, {}, 3
for i = 1, limits do
  local m = M[A[b]]
  local s = {
    m = m, key = K[i], held = K[limits + i], mode = A[b + 1],
    o = A[b + 2] + 0, a = A[b + 3] + 0, b = A[b + 4] + 0, c = A[b + 5] + 0,
  }
  S[i] = s
  m.load(s)
  if s.newer then
    out[#out + 1] = 1
    out[#out + 1] = s.a
    out[#out + 1] = s.b
    out[#out + 1] = s.c
  else
    out[#out + 1] = 0
  end
  m.show(s, out)
  b = b + 6
end
local last, id = #A, nil
while b <= last do
  if ids ~= '0' then
    id = A[b]
    b = b + 1
  end
  local all = true
  for i = 1, limits do
    local s = S[i]
    s.cost = A[b] + 0
    s.fits = s.m.test(s, s.cost, out, id)
    if not s.fits and s.mode == 'e' then all = false end
    b = b + 1
  end
  said[#said + 1] = all and '1' or '0'
  if all then
    for i = 1, limits do
      local s = S[i]
      if s.fits and s.cost > 0 and s.mode ~= 'o' then
        s.m.take(s, s.cost, id)
        s.dirty = true
        if ids == '2' then hold(s, id) end
      end
    end
  end
end
for i = 1, limits do
  local s = S[i]
  if s.dirty and s.mode ~= 'o' then s.m.save(s) end
end
out[2] = table.concat(said)
return out
