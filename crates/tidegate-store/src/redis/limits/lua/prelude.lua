-- A limit is a table: key (of its counter), held (key of the reservations), mode (e enforced, s shadow,
-- o off), o (ordinal of the rule's version), a b c (the algorithm's numbers), and what its counter says.
local K, A = KEYS, ARGV
local fmod, pack, parse = math.fmod, cmsgpack.pack, cmsgpack.unpack
-- Products below it are exact.
local WHOLE = 9007199254740992

-- For how many milliseconds a key lives that differs from a fresh one for `us` microseconds more: a
-- second longer, for a clock that is slowed or set back a little. The bound is 31,000 years, and the last number that Redis gets in plain digits.
local function life(us)
  local ms = math.ceil(us / 1000) + SPARE
  if ms > 1e15 then return 1e15 end
  return ms
end
