-- Reads pages of 50 that end at random places of SESSION, which holds LENGTH messages.
wrk.headers["Authorization"] = "Bearer " .. os.getenv("TOKEN")
local session, length = os.getenv("SESSION"), tonumber(os.getenv("LENGTH"))
local threads = 0
function setup(thread) threads = threads + 1; thread:set("number", threads) end
function init() math.randomseed(os.time() * 16 + number) end
function request()
  local before = math.random(100, length - 100)
  return wrk.format("GET", "/v3/sessions/" .. session .. "/messages?limit=50&before=" .. before)
end
