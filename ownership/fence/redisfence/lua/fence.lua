-- fence.lua: compares a fencing token with the mark, raises the mark, and
-- writes, all in one step. For any language; Redis 5 or later.
--
--   EVAL "$(cat fence.lua)" N fence-key data-key… token owner [n name arg…]…
--
--   KEYS   the key of the mark, then every key that the commands touch; in a
--          Redis Cluster all of them under one hash tag
--   ARGV   the token in decimal digits, the owner, then each write command as
--          the number of its words and the words
--
-- It returns an array whose first element says what happened:
--
--   ok           then the reply of each command
--   stale        then token and owner of the mark; nothing was written
--   other_owner  the same, the token being equal: treat it as an incident
--   corrupt      then field and value: the mark cannot be trusted, and nothing
--                was written; the field "type" names the type of a key that is
--                no hash
--   invalid      then field and value: the token or the owner given is none, or
--                the words of the commands do not add up; nothing was written
--   failed       then which command (1 is the first), its error, and the
--                replies of those before it, which have been written and stay;
--                the mark stays raised, and no command after it has run
--
-- The mark is a hash: token, owner, and at, the server's time in Unix seconds
-- when the token was first accepted. It has no expiry and must not get one.
--
-- It has no #! line on purpose: a script that has one is refused as a whole
-- when memory is short, even if it would only refuse a stale token or delete;
-- without one, Redis refuses the first command that needs memory, and once one
-- has been let through, all that follow (see TestOutOfMemoryLeavesNothingHalf).

local mark, token, owner = KEYS[1], ARGV[1], ARGV[2]

-- number returns what a token is as a number, nil if it is no token: decimal
-- digits from 1 to 2^53-1, without sign, space or leading zero. Up to 2^53 a
-- Lua number holds every integer exactly, and no longer run of digits is ever
-- rounded to less than 2^53. Numbers are compared here and never printed: that
-- would be "%.14g".
local function number(text)
  if not text or not string.find(text, '^[1-9][0-9]*$') then return nil end
  local n = tonumber(text)
  if n > 9007199254740991 then return nil end
  return n
end

local got = number(token)
if not got then return {'invalid', 'token', token or ''} end
if not owner or owner == '' then return {'invalid', 'owner', ''} end

-- What would only be noticed when the mark has been raised is looked at first.
-- 7,000: the commands' words pass through Lua's stack of 8,000.
local first = 3
while first <= #ARGV do
  local words = tonumber(ARGV[first])
  if not words or words < 1 or words > 7000 or words % 1 ~= 0 or first + words > #ARGV then
    return {'invalid', 'words', ARGV[first]}
  end
  first = first + 1 + words
end

local seen = redis.pcall('HMGET', mark, 'token', 'owner')
if seen.err then
  if string.find(seen.err, '^WRONGTYPE') then
    return {'corrupt', 'type', redis.call('TYPE', mark).ok}
  end
  return seen
end

local highest = 0
if seen[1] or seen[2] or redis.call('EXISTS', mark) == 1 then
  highest = number(seen[1])
  if not highest then return {'corrupt', 'token', seen[1] or ''} end
  if not seen[2] or seen[2] == '' then return {'corrupt', 'owner', ''} end
  if got < highest then return {'stale', seen[1], seen[2]} end
  if got == highest and owner ~= seen[2] then return {'other_owner', seen[1], seen[2]} end
end

if got > highest then
  local raised = redis.pcall('HSET', mark, 'token', token, 'owner', owner, 'at', redis.call('TIME')[1])
  if type(raised) == 'table' and raised.err then return raised end
end

local replies = {'ok'}
local i, n = 3, 0
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  local reply = redis.pcall(unpack(ARGV, i + 1, i + words))
  n = n + 1
  if type(reply) == 'table' and reply.err then
    local failed = {'failed', n, reply.err}
    for j = 2, #replies do failed[j + 2] = replies[j] end
    return failed
  end
  replies[n + 1] = reply
  i = i + 1 + words
end
return replies
