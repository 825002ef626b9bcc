-- Reads PATH_AND_QUERY again and again.
wrk.headers["Authorization"] = "Bearer " .. os.getenv("TOKEN")
local path = os.getenv("PATH_AND_QUERY")
function request() return wrk.format("GET", path) end
