-- A limit is a table: key (of its counter), held (key of the reservations), mode (e enforced, s shadow,
-- o off), o (ordinal of the rule's version), a b c (the algorithm's numbers), and what its counter says.
-- A step in M: load, show (appends the state to the reply), test, take, save.
local M, K, A = {}, KEYS, ARGV
local fmod, pack, parse = math.fmod, cmsgpack.pack, cmsgpack.unpack
-- Products below it are exact.
local WHOLE = 9007199254740992
-- A clock that is further back than this has been set.
local REORDER = 1000000

-- For how many milliseconds a key lives that differs from a fresh one for `us` microseconds more: a
-- second longer, for a clock that is slowed or set back a little. The bound is 31,000 years, and the last number that Redis gets in plain digits.
local function life(us)
  local ms = math.ceil(us / 1000) + SPARE
  if ms > 1e15 then return 1e15 end
  return ms
end

-- x * y / z: quotient and remainder, exactly, for y <= z <= 2^50 and x <= 2^53.
local function muldiv(x, y, z)
  local u = x * y
  if u < WHOLE then
    local r = fmod(u, z)
    return (u - r) / z, r
  end
  -- By the digits of x in a base so small that each step stays exact.
  local base, digits, d = math.floor(WHOLE / 2 / z), {}, 0
  while x > 0 do
    d = d + 1
    digits[d] = fmod(x, base)
    x = (x - digits[d]) / base
  end
  local q, r = 0, 0
  for i = d, 1, -1 do
    local t = r * base + y * digits[i]
    r = fmod(t, z)
    q = q * base + (t - r) / z
  end
  return q, r
end

-- What is stored was filled under version `o` and the numbers a b c. An older version is decided by the
-- newer numbers; a newer one takes over. Whether the state must be converted.
local function adopt(s, o, a, b, c)
  if o > s.o then
    s.newer = s.a ~= a or s.b ~= b or s.c ~= c
    s.o, s.a, s.b, s.c = o, a, b, c
    return false
  end
  return s.a ~= a or s.b ~= b or s.c ~= c
end
