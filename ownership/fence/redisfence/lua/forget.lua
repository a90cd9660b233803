-- forget.lua: removes a mark whose token is below a bound, and no other.
--
--   EVAL "$(cat forget.lua)" 1 fence-key bound
--
-- It returns 1 if the mark was removed, 0 if there is none or if its token is
-- not below the bound. A key that is no mark is left alone and gives 0.
--
-- A mark is needed as long as somebody may still write under a lower token.
-- So the bound must be a token below which no lease can write any more.

local function number(text)
  if not text or not string.find(text, '^[1-9][0-9]*$') then return nil end
  local n = tonumber(text)
  if n > 9007199254740991 then return nil end
  return n
end

local bound = number(ARGV[1])
if not bound then return redis.error_reply('ERR the bound is not a token') end
local seen = redis.pcall('HGET', KEYS[1], 'token')
if type(seen) == 'table' and seen.err then
  if string.find(seen.err, '^WRONGTYPE') then return 0 end
  return seen
end
local highest = number(seen)
if not highest or highest >= bound then return 0 end
return redis.pcall('DEL', KEYS[1])
