-- Gives back what reserved calls were charged: each once, and only in the window it was charged in.
--
-- KEYS: counter and reservations of each. ARGV: for each kind, b (the window), id, cost.
-- Reply: for each 1, or 0 when nothing was to be given back.
local credit = {}

-- Time pays the charge first, so that what is given back is never more than what it still weighs.
local function bucket_credit(s, cost, at)
  if at > now then return false end
  local q, part = paid(s, now - at)
  local k, r = cost - q, -part
  if r < 0 then k, r = k - 1, r + s.b end
  if k < 0 then return false end
  k, r = s.k - k, s.r - r
  if r < 0 then k, r = k - 1, r + s.b end
  if k < 0 then k, r = 0, 0 end
  s.k, s.r = k, r
  return true
end
credit.t, credit.l = bucket_credit, bucket_credit

function credit.f(s, cost, at)
  if at - fmod(at, s.b) ~= s.start then return false end
  s.used = math.max(s.used - cost, 0)
  return true
end

function credit.s(s, cost, at)
  local start = at - fmod(at, s.b)
  if start == s.start then
    s.cur = math.max(s.cur - cost, 0)
  elseif start == s.start - s.b then
    s.prev = math.max(s.prev - cost, 0)
  else
    return false
  end
  return true
end

-- Every later sum shrinks; behind too many it is not worth the server's time.
function credit.g(s, cost, at)
  if at <= now - s.b then return false end
  local first = count(s, s.gone + 1, function(t) return t < at end) + 1
  if first > s.n or s.n - first > 1000 or (run(s, first)) ~= at then return false end
  for i = first, s.n do
    local t, sum = run(s, i)
    sum = sum - cost
    if sum < 0 then sum = sum + ROUND end
    redis.call('LSET', s.key, i, pack(t, sum))
    if i == s.n then s.sum = sum end
  end
  s.used = s.used - cost
  return true
end

local out = {}
for i = 1, #K / 2 do
  local b = 4 * i - 3
  local kind, id, cost = A[b], A[b + 2], A[b + 3] + 0
  -- Older than any version, so that the stored numbers count.
  local s = {m = M[kind], key = K[2 * i - 1], held = K[2 * i], mode = 'e', o = -1, a = -1, b = A[b + 1] + 0, c = 0}
  s.m.load(s)
  local given = false
  if s.newer then
    local member = string.format('%.0f:%d:', cost, s.g or 0) .. id
    local at = redis.call('ZSCORE', s.held, member)
    if at then
      redis.call('ZREM', s.held, member)
      given = credit[kind](s, cost, at + 0)
      if given then s.m.save(s) end
    end
  end
  out[i] = given and 1 or 0
end
return out
