-- Reads PATH_AND_QUERY again and again, as the holders of TOKENS in turn.
local path = os.getenv("PATH_AND_QUERY")
local requests = {}
for token in os.getenv("TOKENS"):gmatch("[^,]+") do
  requests[#requests + 1] = token
end
local at = 0
function request()
  at = at % #requests + 1
  return wrk.format("GET", path, { ["Authorization"] = "Bearer " .. requests[at] })
end
