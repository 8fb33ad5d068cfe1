-- SPDX-License-Identifier: Apache-2.0
-- One receive queue: every frame is looked at, counted in exactly one place, and freed.
local memory = require "memory"
local mg = require "moongen"
local ffi = require "ffi"
local frame = require "xdplab.frame"
local latencies = require "xdplab.latencies"

local receiver = {}
receiver.__index = receiver

local REMEMBERED = 65536 -- sequence numbers of a stream among which a second arrival is recognised
local NS = 1e9

local function memory_of(streams)
	local seen = {}
	for stream = 0, streams - 1 do
		seen[stream] = { next = 0, slots = ffi.new("uint32_t[?]", REMEMBERED) }
		ffi.fill(seen[stream].slots, 4 * REMEMBERED, 0xff)
	end
	return seen
end

-- What all receivers of one task know together: an answer may come back by any queue.
function receiver.shared(plan)
	return { seen = memory_of(plan.streams), duplicates = 0, reordered = 0, stale = 0, foreign = 0, bad_run_id = 0,
		bad_stamps = 0, latencies = latencies.new() }
end

function receiver.new(plan, queue, shared)
	return setmetatable({ plan = plan, queue = queue, shared = shared, bufs = memory.bufArray(), packets = 0,
		ns = NS / mg.getCyclesFrequency() }, receiver)
end

-- Take what has arrived; return how many of them were this burst's frames.
function receiver:step()
	local n = self.queue:tryRecv(self.bufs, 0)
	local now, ours = n > 0 and mg.getCycles(), 0
	for i = 1, n do
		local buf = self.bufs[i]
		if self:take(buf:getBytes(), buf:getSize(), now) then
			ours = ours + 1
		end
	end
	self.bufs:free(n)
	self.packets = self.packets + ours
	return ours
end

function receiver:take(bytes, size, now)
	local shared = self.shared
	local magic = size >= frame.SHORTEST and frame.magic(bytes) or 0
	if magic ~= self.plan.magic then
		local other = math.floor(magic / 65536) == math.floor(frame.MAGIC / 65536) and "bad_run_id" or "foreign"
		shared[other] = shared[other] + 1
		return false
	end
	local flow, stamp = frame.flow(bytes)
	if not self:record(flow % self.plan.streams, frame.sequence(bytes)) then
		return false
	end
	if stamp then
		self:latency(tonumber(now - stamp) * self.ns)
	end
	return true
end

-- Whether it is this burst's: one that was under way for longer than the settling is stale.
function receiver:record(stream, sequence)
	local shared, seen = self.shared, self.shared.seen[stream]
	if sequence < self.plan.first[stream + 1] then
		shared.stale = shared.stale + 1
		return false
	end
	local slot = sequence % REMEMBERED
	if seen.slots[slot] == sequence then
		shared.duplicates = shared.duplicates + 1
	elseif sequence < seen.next then
		shared.reordered = shared.reordered + 1
	end
	seen.slots[slot] = sequence
	seen.next = math.max(seen.next, sequence + 1)
	return true
end

function receiver:latency(ns)
	if ns < 0 or ns > self.plan.longest_ns then
		self.shared.bad_stamps = self.shared.bad_stamps + 1
	else
		latencies.add(self.shared.latencies, ns)
	end
end

return receiver
