-- Token buckets and leaky buckets: a tokens, one every b/c microseconds. The debt at `at` is k whole
-- tokens and r parts of one, of which b make a token and c are paid in a microsecond.

-- What e microseconds pay: whole tokens and parts.
local function paid(s, e)
  local p, n = s.b, s.c
  local u = e * n
  if u < WHOLE then
    local r = fmod(u, p)
    return (u - r) / p, r
  end
  -- p microseconds pay n tokens; a quotient too large to be exact is larger than any debt.
  local rest = fmod(e, p)
  local q, r = muldiv(n, rest, p)
  return (e - rest) / p * n + q, r
end

-- The debt as it is at `t`, also earlier than `at`.
local function owed(s, t)
  local e, k, r = t - s.at, s.k, s.r
  if e == 0 then return k, r end
  if e > 0 then
    local q, part = paid(s, e)
    k, r = k - q, r - part
    if r < 0 then k, r = k - 1, r + s.b end
    if k < 0 then return 0, 0 end
    return k, r
  end
  local q, part = paid(s, -e)
  k, r = k + q, r + part
  if r >= s.b then k, r = k + 1, r - s.b end
  return k, r
end

local function more(k, r, l, s)
  return k > l or (k == l and r > s)
end

-- g counts what wiped out debt out of turn; what was reserved before it cannot be given back.
--
-- A debt that passes `k` and `r` by more than a reordered call's lag is what a clock set back leaves.
local function bound(s, k, r)
  local l, p = owed(s, now + REORDER)
  if more(l, p, k, r) then
    s.k, s.r, s.at, s.g, s.dirty = k, r, now, s.g + 1, true
    return true
  end
end

-- Carries a debt of b parts a token over: whole tokens exactly, the rest rounded up.
local function carry(s, k, r, b)
  if r > 0 and b ~= s.b then
    local q, part
    if s.b <= b then q, part = muldiv(r, s.b, b) else
      -- r * (s.b mod b) / b beside r * (s.b div b), for the exact division wants y <= z.
      local rest = fmod(s.b, b)
      q, part = muldiv(r, rest, b)
      q = q + r * ((s.b - rest) / b)
    end
    r = q
    if part > 0 then r = r + 1 end
    if r >= s.b then k, r = k + 1, r - s.b end
  end
  s.k, s.r, s.at, s.g, s.dirty = k, r, now, s.g + 1, true
end
