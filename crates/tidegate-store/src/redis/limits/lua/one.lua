-- One limit in its usual state, its steps in a straight line. What is rare is left to what follows: nothing
-- has been written when that is found.
if A[1] == '1' and A[2] == '0' then
  local mode = A[4]
  s.key, s.o, s.a, s.b, s.c = K[1], A[5] + 0, A[6] + 0, A[7] + 0, A[8] + 0
  --@load
  if not rare then
    local out, said, dirty = {now, '', 0}, '', false
    --@show
    for i = 9, #A do
      local cost, fits = A[i] + 0
      --@test
      if fits and cost > 0 and mode ~= 'o' then
        --@take
        dirty = true
      end
      said = said .. ((fits or mode ~= 'e') and '1' or '0')
    end
    if dirty then
      --@save
    end
    out[2] = said
    return out
  end
end
