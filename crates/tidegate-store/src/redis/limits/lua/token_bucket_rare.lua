local function rare_t(s, o, a, b, c)
  if adopt(s, o, a, b, c) then
    local numbers = {b = b, c = c, at = s.at, k = s.k, r = s.r}
    local k, r = owed(numbers, now)
    if more(k, r, a, 0) then k, r = a, 0 end
    carry(s, k, r, b)
    if more(s.k, s.r, s.a, 0) then s.k, s.r = s.a, 0 end
    return
  end
  local k, r = owed(s, now)
  if more(k, r, s.a, 0) and bound(s, s.a, 0) then return end
  s.k, s.r, s.at = k, r, now
end
