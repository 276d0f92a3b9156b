-- Returns the fields of a day's hash and the subjects of its sorted set, each name with its value
-- behind it. KEYS: as in add.lua. ARGV: the most fields, the most subjects, the most bytes of one text.
if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[1]) or redis.call('ZCARD', KEYS[2]) > tonumber(ARGV[2]) then
	return redis.error_reply('ERR the day has too many entries')
end
local day = {redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')}
for _, all in ipairs(day) do
	for _, text in ipairs(all) do
		if #text > tonumber(ARGV[3]) then
			return redis.error_reply('ERR an entry of the day is too long')
		end
	end
end
return day
