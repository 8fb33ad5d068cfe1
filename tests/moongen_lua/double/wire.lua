-- What a link and a DUT do to frames: swapped MACs, a delay, and the faults that XDPLAB_FAULTS names
-- (`lose=10,double=7,swap=5,foreign=1,other_run=1`: every tenth frame is lost, …).
local clock = require "clock"

local wire = { DELAY_S = 5e-6, inside = {}, sent = 0, missed = 0, faults = {}, record = {} }

for name, every in (os.getenv("XDPLAB_FAULTS") or ""):gmatch("([%w_]+)=(%d+)") do
	wire.faults[name] = tonumber(every)
end

local function hits(name)
	return wire.faults[name] and wire.sent % wire.faults[name] == 0
end

local function put(bytes, queue)
	wire.inside[#wire.inside + 1] = { at = clock.now + wire.DELAY_S, bytes = bytes, queue = queue }
end

local function reflected(bytes)
	return bytes:sub(7, 12) .. bytes:sub(1, 6) .. bytes:sub(13)
end

-- A frame of another run: the same bytes but for the run id.
local function of_another_run(bytes)
	return bytes:sub(1, 45) .. string.char((bytes:byte(46) + 1) % 256) .. bytes:sub(47)
end

function wire.send(bytes, queue)
	wire.sent = wire.sent + 1
	wire.record[#wire.record + 1] = bytes
	local back = reflected(bytes)
	if hits("foreign") then put(("\0"):rep(64), queue) end
	if hits("other_run") then put(of_another_run(back), queue) end
	if hits("lose") or hits("no_link") then return end
	if hits("overflow") then -- it came back, and the receive ring was full
		wire.missed = wire.missed + 1
		return
	end
	put(back, queue)
	if hits("double") then put(back, queue) end
	local n = #wire.inside
	if hits("swap") and n > 1 then
		wire.inside[n].bytes, wire.inside[n - 1].bytes = wire.inside[n - 1].bytes, wire.inside[n].bytes
	end
end

-- Up to `most` frames that have arrived at `queue`.
function wire.receive(queue, most)
	local got, left = {}, {}
	for _, item in ipairs(wire.inside) do
		if item.queue == queue and item.at <= clock.now and #got < most then
			got[#got + 1] = item.bytes
		else
			left[#left + 1] = item
		end
	end
	wire.inside = left
	return got
end

return wire
