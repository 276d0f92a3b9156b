-- undo.lua takes back what receipts.lua has recorded for a request that was denied on another slot.
--
-- KEYS[1]   a receipt
-- ARGV[1]   '>I7', the end of the receipt, which tells it from a later one
-- ARGV[2]   the charge, if the request made the receipt: '>I4I7', its cost and its place, see piece
--           in across.go. Empty if the request was a repeat
--
-- Reply: the charge that the caller is to take back, as in ARGV[2], or nothing.
--
-- A charge belongs to the request that made the receipt and to all that have repeated it. Of those
-- that were not denied, all but one are the repeats that the receipt counts. The last one takes
-- the charge back, with the receipt. If the request that made it is denied before others, it leaves
-- its charge in the receipt for them.

local bytes = redis.pcall('GETRANGE', KEYS[1], '0', '24')
local kind, ends, cost, repeats
if type(bytes) == 'string' and (#bytes == 13 or #bytes == 24) then
  kind, ends, cost, repeats = struct.unpack('>BI7I4B', bytes)
end
local charge = ARGV[2]
if kind ~= 168 or ends ~= struct.unpack('>I7', ARGV[1]) then
  return charge
end
if charge == '' then
  charge = string.sub(bytes, 14)
end
if repeats > 0 then
  redis.call('SET', KEYS[1], struct.pack('>BI7I4B', kind, ends, cost, repeats - 1) .. charge, 'KEEPTTL')
  return ''
elseif charge ~= '' then
  redis.call('UNLINK', KEYS[1])
end
return charge
