-- Time stamps of a NIC that has them (XDPLAB_DRIVER=net_ixgbe); elsewhere the task dies, as it does with MoonGen.
local device = require "device"

local timestamping, stamper, count = {}, {}, 0
stamper.__index = stamper

function timestamping:newUdpTimestamper()
	assert(device.DRIVER == "net_ixgbe", "this device cannot stamp")
	return setmetatable({}, stamper)
end

-- A probe as MoonGen makes it: to the multicast address of PTP, unless the script changes that.
local function probe()
	local eth = { dst = "01:1b:19:00:00:00", src = "" }
	local function mac(key)
		return { setString = function(_, text) eth[key] = text end }
	end
	local function ip(key)
		return { set = function(_, number) eth[key] = number end }
	end
	local packet = { eth = { dst = mac("dst"), src = mac("src") }, ip4 = { dst = ip("ip_dst"), src = ip("ip_src") } }
	return { getUdpPacket = function() return packet end }, eth
end

function stamper:measureLatency(bytes, modify)
	assert(bytes >= 80, "a probe is 84 bytes at least")
	local buf, eth = probe()
	modify(buf)
	assert(eth.dst == "02:00:00:00:00:02" and eth.src == "02:00:00:00:00:01", "a probe to " .. eth.dst)
	assert(eth.ip_dst == 0xc6130001 and eth.ip_src == 0xc6120001, "a probe of no test flow")
	coroutine.yield()
	count = count + 1
	return count % 10 ~= 0 and 1000 + count or nil
end

return timestamping
