-- Sends BODY as a PATCH to PATH_AND_QUERY.
local headers = { ["Authorization"] = "Bearer " .. os.getenv("TOKEN"), ["Content-Type"] = "application/json" }
local path, body = os.getenv("PATH_AND_QUERY"), os.getenv("BODY")
function request() return wrk.format("PATCH", path, headers, body) end
