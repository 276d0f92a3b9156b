-- undo.lua takes back what receipts.lua has recorded for a request that was denied on another slot.
--
-- KEYS[1]   a receipt
-- ARGV[1]   'made' if the request made it, 'repeat' if it was a repeat
-- ARGV[2]   '>I7', the end of the receipt, which tells it from a later one
--
-- Reply: 1 if the charge of the receipt is to be taken back, otherwise 0. If the request made the
-- receipt, and another request was let in as a repeat since then, the charge is that request's now.
-- Receipt and charge stay.

local bytes = redis.pcall('GETRANGE', KEYS[1], '0', '13')
local kind, ends, cost, repeats
if type(bytes) == 'string' and #bytes == 13 then
  kind, ends, cost, repeats = struct.unpack('>BI7I4B', bytes)
end
local same = kind == 168 and ends == struct.unpack('>I7', ARGV[2])
if ARGV[1] == 'repeat' then
  if same and repeats > 0 then
    redis.call('SET', KEYS[1], struct.pack('>BI7I4B', kind, ends, cost, repeats - 1), 'KEEPTTL')
  end
  return 0
elseif same and repeats > 0 then
  return 0
elseif same then
  redis.call('UNLINK', KEYS[1])
end
return 1
