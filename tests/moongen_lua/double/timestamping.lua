-- Time stamps of a NIC that has them (XDPLAB_DRIVER=net_ixgbe); elsewhere the task dies, as it does with MoonGen.
local device = require "device"

local timestamping, stamper, count = {}, {}, 0
stamper.__index = stamper

function timestamping:newUdpTimestamper()
	assert(device.DRIVER == "net_ixgbe", "this device cannot stamp")
	return setmetatable({}, stamper)
end

function stamper:measureLatency(bytes)
	assert(bytes >= 80, "a probe is 84 bytes at least")
	coroutine.yield()
	count = count + 1
	return count % 10 ~= 0 and 1000 + count or nil
end

return timestamping
