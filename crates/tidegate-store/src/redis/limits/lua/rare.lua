-- A step in M: load, show (appends the state to the reply), test, take, save.
local M = {}
-- A clock that is further back than this has been set.
local REORDER = 1000000

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
