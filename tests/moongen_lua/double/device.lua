-- One port on the double's wire.
local ffi = require "ffi"
local clock = require "clock"
local memory = require "memory"
local wire = require "wire"

local device = { DRIVER = os.getenv("XDPLAB_DRIVER") or "net_af_packet" }

local port = {}
port.__index = port

local tx, rx = {}, {}
tx.__index, rx.__index = tx, rx

function tx:send(bufs)
	for i = 1, bufs.size do
		local buf = bufs[i]
		wire.send(ffi.string(buf.bytes, buf.size), self.id)
	end
	memory.taken = memory.taken - bufs.size
	clock.pass(bufs.size * 1e-6)
	coroutine.yield()
end

function rx:tryRecv(bufs, wait)
	assert(wait, "without a wait tryRecv never looks at mg.running()")
	local got = wire.receive(self.id, bufs.size)
	for i, bytes in ipairs(got) do
		bufs.slots[i] = memory.from(bytes)
	end
	memory.taken = memory.taken + #got
	self.port.received = self.port.received + #got
	coroutine.yield()
	return #got
end

function port:getTxQueue(id)
	assert(id < self.args.txQueues, "no such queue")
	return setmetatable({ id = id, port = self, __serialize = true }, tx)
end

function port:getRxQueue(id)
	assert(id < self.args.rxQueues, "no such queue")
	return setmetatable({ id = id, port = self, __serialize = true }, rx)
end

function port:getDriverName() return device.DRIVER end

function port:getStats()
	local unsent = wire.faults.no_link and wire.sent or 0 -- what a port without a link takes, and never sends
	return { opackets = 1ULL * (wire.sent - unsent), oerrors = 0ULL, ipackets = 1ULL * self.received,
		imissed = 1ULL * wire.missed, rx_nombuf = 0ULL }
end

function port:getInfo() return { max_rx_queues = 16, max_tx_queues = 16 } end

function device.numDevices() return 1 end

function device.get(id)
	return setmetatable({ id = id }, port)
end

function device.config(args)
	assert(not args.rssQueues or device.DRIVER ~= "net_af_packet", "rssQueues is fatal on af_packet")
	return setmetatable({ args = args, received = 0, __serialize = true }, port)
end

function device.waitForLinks() end

return device
