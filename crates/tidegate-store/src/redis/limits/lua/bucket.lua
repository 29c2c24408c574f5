--@pay
-- What the time since `at` has paid of the debt.
local part = fmod(due, b)
s.k, s.r, s.at = s.k - (due - part) / b, s.r - part, now
if s.r < 0 then s.k, s.r = s.k - 1, s.r + b end
if s.k < 0 then s.k, s.r = 0, 0 end
--@show
out[#out + 1] = s.k
out[#out + 1] = s.r
--@test
local k = s.k + cost
fits = k < s.a or (k == s.a and s.r == 0)
--@take
s.k = s.k + cost
