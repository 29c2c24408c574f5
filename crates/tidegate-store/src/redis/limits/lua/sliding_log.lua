-- a units in any b microseconds, at most c instants. A list: first version, numbers and the sum before
-- the oldest run; then the runs, oldest first: an instant, and the sum of all units up to it. Sums go
-- round at 2^52, so that their differences stay exact for ever.
local ROUND = 4503599627370496

local function run(s, i)
  return parse(redis.call('LINDEX', s.key, i))
end

local function since(sum, base)
  local d = sum - base
  if d < 0 then return d + ROUND end
  return d
end

-- How many of the stored runs `low` .. s.n hold `below`: they do up to some run and not from there on.
-- Looked for from the oldest in growing steps.
local function count(s, low, below)
  local step, high = 1, low
  while high <= s.n and below(run(s, high)) do
    low = high + 1
    high = high + step
    step = step * 2
  end
  if high > s.n then high = s.n + 1 end
  while low < high do
    local mid = math.floor((low + high) / 2)
    if below(run(s, mid)) then low = mid + 1 else high = mid end
  end
  return low - 1
end

M.g = {
  load = function(s)
    -- n stored runs, of which `gone` have left the window; `at` and `sum` of the newest.
    s.n, s.gone, s.base, s.used, s.at, s.sum = 0, 0, 0, 0, 0, 0
    local head = redis.call('LRANGE', s.key, 0, 1)
    if not head[1] then return end
    s.head = head[1]
    local o, a, base = parse(s.head)
    if adopt(s, o, a, s.b, s.c) then s.dirty = true end
    s.base, s.n = base, redis.call('LLEN', s.key) - 1
    s.at, s.sum = run(s, -1)
    if s.at > now + REORDER then
      -- The clock was set back: what lies in its future counts as used now.
      local kept = count(s, 1, function(at) return at <= now end)
      redis.call('LTRIM', s.key, 0, kept)
      redis.call('RPUSH', s.key, pack(now, s.sum))
      s.n, s.at, s.dirty = kept + 1, now, true
    end
    local edge = now - s.b
    if parse(head[2]) <= edge then
      s.gone = count(s, 1, function(at) return at <= edge end)
      if s.gone > 0 then
        local _
        _, s.base = run(s, s.gone)
      end
    end
    s.used = since(s.sum, s.base)
  end,
  show = function(s, out)
    out[#out + 1] = s.used
    out[#out + 1] = s.at
  end,
  test = function(s, cost, out)
    local missing = s.used + cost - s.a
    if missing <= 0 then return true end
    if cost <= s.a then
      -- When the run that makes room was made.
      local i = count(s, s.gone + 1, function(_, sum) return since(sum, s.base) < missing end) + 1
      -- The newest is the one of this call's own instant, unless that is not stored yet.
      if i > s.n or (i == s.n and s.taken and not s.fresh) then
        out[#out + 1] = s.at
      else
        out[#out + 1] = (run(s, i))
      end
    end
    return false
  end,
  take = function(s, cost)
    s.used, s.sum = s.used + cost, s.sum + cost
    if s.sum >= ROUND then s.sum = s.sum - ROUND end
    if now > s.at then
      -- At its bound a log counts its newest run as made now.
      s.fresh = s.n - s.gone < s.c
      s.at = now
    elseif s.n == 0 then
      s.fresh = true
    end
    s.taken = true
  end,
  save = function(s)
    local first = pack(s.o, s.a, s.base)
    if s.n == 0 then
      if not s.taken then return end
      redis.call('RPUSH', s.key, first, pack(s.at, s.sum))
    else
      if s.gone == s.n and not s.taken then
        redis.call('DEL', s.key)
        return
      end
      -- The last of the runs that have gone makes room for the head.
      if s.gone > 0 then redis.call('LTRIM', s.key, s.gone, -1) end
      if s.gone > 0 or first ~= s.head then redis.call('LSET', s.key, 0, first) end
      if s.fresh then
        redis.call('RPUSH', s.key, pack(s.at, s.sum))
      elseif s.taken then
        redis.call('LSET', s.key, -1, pack(s.at, s.sum))
      end
    end
    redis.call('PEXPIRE', s.key, life(s.at + s.b - now))
  end,
}
