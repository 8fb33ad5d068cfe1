-- SPDX-License-Identifier: Apache-2.0
-- One receive queue: checks every frame, counts it in exactly one place, and frees it.
local memory = require "memory"
local mg = require "moongen"
local ffi = require "ffi"
local frame = require "xdplab.frame"
local latencies = require "xdplab.latencies"

local receiver = {}
receiver.__index = receiver

local REMEMBERED = 65536 -- a duplicate is recognised among so many sequence numbers of a stream
local NS = 1e9

local function memory_of(plan)
	local seen = {}
	for stream = 0, plan.streams - 1 do
		local slots = ffi.new("uint32_t[?]", REMEMBERED)
		for slot = 0, REMEMBERED - 1 do
			slots[slot] = slot == 0 and 1 or 0 -- never a number of this slot: marks it as empty
		end
		seen[stream] = { next = plan.first[stream + 1], slots = slots }
	end
	return seen
end

-- State that all receivers of one task share: a frame may come back on any queue.
function receiver.shared(plan)
	return { seen = memory_of(plan), flow_next = {}, duplicates = 0, reordered = 0, stale = 0, foreign = 0, bad_run_id = 0,
		bad_stamps = 0, bytes = 0, foreign_bytes = 0, latencies = latencies.new(), from_due = latencies.new() }
end

function receiver.new(plan, queue, shared)
	return setmetatable({ plan = plan, queue = queue, shared = shared, bufs = memory.bufArray(), packets = 0,
		rate = plan.rate_pps and plan.rate_pps / plan.streams, ns = NS / mg.getCyclesFrequency() }, receiver)
end

-- Take the frames that have arrived; return how many belong to this burst.
function receiver:step()
	local n = self.queue:tryRecv(self.bufs, 0)
	local now, elapsed, ours = n > 0 and mg.getCycles(), n > 0 and mg.getTime() - self.plan.begin, 0
	for i = 1, n do
		local buf = self.bufs[i]
		if self:take(buf:getBytes(), buf:getSize(), now, elapsed) then
			ours = ours + 1
		end
	end
	self.bufs:free(n)
	self.packets = self.packets + ours
	return ours
end

function receiver:take(bytes, size, now, elapsed)
	local shared = self.shared
	local magic = size >= frame.SHORTEST and frame.magic(bytes) or 0
	if magic ~= self.plan.magic then
		local other = math.floor(magic / 65536) == math.floor(frame.MAGIC / 65536) and "bad_run_id" or "foreign"
		shared[other] = shared[other] + 1
		shared.foreign_bytes = shared.foreign_bytes + (other == "foreign" and size or 0)
		return false
	end
	local flow, stamp = frame.flow(bytes)
	local stream = flow % self.plan.streams
	local number = self:whole_number(stream, frame.sequence(bytes))
	if not self:record(stream, flow, number) then
		return false
	end
	shared.bytes = shared.bytes + size
	if stamp and self:latency(tonumber(now - stamp) * self.ns) and self.rate then
		local due = (number - self.plan.first[stream + 1]) / self.rate
		latencies.add(self.shared.from_due, math.max(0, (elapsed - due) * NS))
	end
	return true
end

-- The full sequence number, of which a frame carries the low 32 bits: the candidate closest to the highest seen.
function receiver:whole_number(stream, low)
	local next = self.shared.seen[stream].next
	local ahead = (low - next) % 2 ^ 32
	return next + (ahead < 2 ^ 31 and ahead or ahead - 2 ^ 32)
end

-- Whether the frame belongs to this burst; one that took longer than the settling time is stale. Order counts per flow.
function receiver:record(stream, flow, number)
	local shared, seen = self.shared, self.shared.seen[stream]
	if number < self.plan.first[stream + 1] then
		shared.stale = shared.stale + 1
		return false
	end
	local slot, low = number % REMEMBERED, number % 2 ^ 32
	if seen.slots[slot] == low then
		shared.duplicates = shared.duplicates + 1
	elseif number < (shared.flow_next[flow] or 0) then
		shared.reordered = shared.reordered + 1
	end
	seen.slots[slot] = low
	seen.next = math.max(seen.next, number + 1)
	shared.flow_next[flow] = math.max(shared.flow_next[flow] or 0, number + 1)
	return true
end

-- Record a latency; return whether it is plausible.
function receiver:latency(ns)
	if ns < 0 or ns > self.plan.longest_ns then
		self.shared.bad_stamps = self.shared.bad_stamps + 1
		return false
	end
	latencies.add(self.shared.latencies, ns)
	return true
end

return receiver
