local function rare_l(s, o, a, b, c)
  if adopt(s, o, a, b, c) then
    local numbers = {b = b, c = c, at = s.at, k = s.k, r = s.r}
    local k, r = owed(numbers, now)
    if more(k, r, s.x, s.y) then k, r = s.x, s.y end
    carry(s, k, r, b)
    s.x, s.y = s.a, 0
    if more(s.k, s.r, s.a, 0) then s.x, s.y = s.k, s.r end
    return
  end
  local k, r = owed(s, now)
  if more(k, r, s.x, s.y) then
    if bound(s, s.x, s.y) then return end
  elseif more(s.x, s.y, s.a, 0) then
    s.x, s.y = k, r
    if more(s.a, 0, k, r) then s.x, s.y = s.a, 0 end
  end
  s.k, s.r, s.at = k, r, now
end
