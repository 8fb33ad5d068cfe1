-- SPDX-License-Identifier: Apache-2.0
-- One transmit queue, which is one stream: numbers its frames and sends as many as are due.
local memory = require "memory"
local mg = require "moongen"
local bit = require "bit"
local frame = require "xdplab.frame"
local latencies = require "xdplab.latencies"

local sender = {}
sender.__index = sender

local LATE_S = 100e-6 -- frames that are sent more than this after their due time count as late

-- Which frames are stamped: one in `mean`, at random distances as in xdpgen (native/xdpgen/shared.h): flows come in turn,
-- and at a fixed distance some would never be drawn.
local draw = {}
draw.__index = draw

local function draws(seed, mean)
	local self = setmetatable({ state = bit.tobit(seed % 2 ^ 32), mean = mean }, draw)
	self.state = self.state == 0 and 1 or self.state
	for _ = 1, 8 do -- neighbouring seeds begin alike
		self.left = mean > 1 and self:distance()
	end
	return self
end

-- Marsaglia's xorshift32; uniform from 1 to 2 mean - 1.
function draw:distance()
	local x = self.state
	x = bit.bxor(x, bit.lshift(x, 13))
	x = bit.bxor(x, bit.rshift(x, 17))
	x = bit.bxor(x, bit.lshift(x, 5))
	self.state = x
	return 1 + math.floor(x % 2 ^ 32 / 2 ^ 32 * (2 * self.mean - 1))
end

function draw:drawn()
	if self.mean <= 1 then
		return self.mean == 1
	end
	self.left = self.left - 1
	if self.left > 0 then
		return false
	end
	self.left = self:distance()
	return true
end

-- `rate` is this queue's share in frames per second; nil means as fast as possible.
function sender.new(plan, queue, stream)
	local heads, flows = frame.heads(plan, stream, plan.streams)
	local pool = memory.createMemPool(function(buf) end)
	return setmetatable({ plan = plan, queue = queue, pool = pool, bufs = pool:bufArray(plan.batch), heads = heads,
		flows = flows, flow = 0, sequence = plan.first[stream + 1], sent = 0, late = 0,
		stamped = draws(plan.stamp_seed * plan.streams + stream, plan.stamp_every),
		lateness = latencies.new(), rate = plan.rate_pps and plan.rate_pps / plan.streams,
		most = plan.max_frames and math.ceil(plan.max_frames / plan.streams) or math.huge }, sender)
end

function sender:due(elapsed)
	local wanted = self.rate and math.floor(elapsed * self.rate) + 1 - self.sent or self.plan.batch
	return math.max(0, math.min(wanted, self.plan.batch, self.most - self.sent))
end

-- Send the frames that are due `elapsed` seconds into the burst; return their number.
function sender:step(elapsed)
	local n = self:due(elapsed)
	if n == 0 then
		return 0
	end
	local now = self.rate and mg.getTime() - self.plan.begin -- the batches of the queues before took their time
	self.bufs:allocN(self.plan.bytes, n)
	for i = 1, n do
		self:write(self.bufs[i]:getBytes())
		if self.rate then
			self:keep_schedule(now - (self.sent + i - 1) / self.rate)
		end
	end
	self.queue:send(self.bufs)
	self.sent = self.sent + n
	return n
end

-- Record a frame that is sent `seconds` after its due time.
function sender:keep_schedule(seconds)
	latencies.add(self.lateness, math.max(0, seconds * 1e9))
	if seconds > LATE_S then
		self.late = self.late + 1
	end
end

function sender:write(bytes)
	local stamp = self.stamped:drawn() and mg.getCycles() or nil
	frame.write(bytes, self.heads, self.flow, self.sequence, stamp)
	self.flow = (self.flow + 1) % self.flows
	self.sequence = self.sequence + 1 -- frames carry its low 32 bits
end

return sender
