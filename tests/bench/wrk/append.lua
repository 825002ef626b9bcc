-- Appends one message of 1 KiB a request, each with a localId of its own, to the sessions in SESSIONS (comma separated).
local sessions = {}
for id in string.gmatch(os.getenv("SESSIONS"), "[^,]+") do sessions[#sessions + 1] = id end
local content = string.rep("x", tonumber(os.getenv("CONTENT_BYTES") or "1024"))
local run = os.getenv("RUN")
local threads = 0
function setup(thread) threads = threads + 1; thread:set("number", threads) end
local count = 0
function request()
  count = count + 1
  local path = "/v3/sessions/" .. sessions[count % #sessions + 1] .. "/messages"
  local body = '{"content":"' .. content .. '","localId":"' .. run .. "-" .. number .. "-" .. count .. '"}'
  return wrk.format("POST", path, { ["Authorization"] = "Bearer " .. os.getenv("TOKEN"), ["Content-Type"] = "application/json" }, body)
end
