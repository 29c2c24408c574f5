local function rare_f(s, o, a, start, used, g)
  if adopt(s, o, a, s.b, s.c) then s.dirty = true end
  s.g = g
  if start < s.start then return end
  s.used = used
  if start > s.start then
    if start - now <= REORDER then s.start = start else s.g, s.dirty = g + 1, true end
  end
end
