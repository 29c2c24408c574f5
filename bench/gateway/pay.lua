-- wrk: a payment with a fresh key each time, or always the same one (replay).
local fresh = os.getenv("FRESH") ~= "0"
local n, salt = 0, tostring(os.time()) .. "-" .. tostring(math.random(1, 1000000000))
request = function()
  n = n + 1
  local key = fresh and (salt .. "-" .. n) or "always-the-same"
  return wrk.format("POST", "/orders/7/pay", { ["x-user-id"] = "alice", ["idempotency-key"] = key, ["content-type"] = "application/json" }, '{"amount":10}')
end
