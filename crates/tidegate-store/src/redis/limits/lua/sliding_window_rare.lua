local function rare_s(s, o, a, start, cur, prev, g)
  if adopt(s, o, a, s.b, s.c) then s.dirty = true end
  s.g = g
  if start < s.start then
    if s.start - start <= s.b then s.prev = cur end
    return
  end
  s.cur, s.prev = cur, prev
  if start > s.start then
    if start - now <= REORDER then s.start = start else s.g, s.dirty = g + 1, true end
  end
end

local function rare_weight(s, left)
  local q, r = muldiv(s.prev, left, s.b)
  if r > 0 then q = q + 1 end
  s.old = q
end
