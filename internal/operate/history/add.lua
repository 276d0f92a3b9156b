-- Adds counts to a day. KEYS: the hash of its rules, the sorted set of its subjects.
-- ARGV: seconds until both expire, the most fields, the most subjects, the number of fields, then
-- for each field its name, the field in its place above the bound, and its count; then for each
-- subject its name and its count. A field that is no number stays as it is.
local fields = redis.call('HLEN', KEYS[1])
local at = 5
for _ = 1, tonumber(ARGV[4]) do
	local field = ARGV[at]
	if redis.call('HEXISTS', KEYS[1], field) == 0 then
		if fields >= tonumber(ARGV[2]) then
			field = ARGV[at + 1]
		else
			fields = fields + 1
		end
	end
	redis.pcall('HINCRBY', KEYS[1], field, ARGV[at + 2])
	at = at + 3
end
for i = at, #ARGV, 2 do
	redis.call('ZINCRBY', KEYS[2], ARGV[i + 1], ARGV[i])
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - tonumber(ARGV[3]))
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[1])
return 1
