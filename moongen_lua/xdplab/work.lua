-- SPDX-License-Identifier: Apache-2.0
-- The work of one task in one burst: it sends on some queues, drains some queues, or does both.
-- With two cores, only one is left for tasks, and one task does everything.
local mg = require "moongen"
local latencies = require "xdplab.latencies"
local orders = require "xdplab.orders"
local receiver = require "xdplab.receiver"
local sender = require "xdplab.sender"

local function each(queues, make)
	local made = {}
	for i, queue in ipairs(queues) do
		made[i] = make(queue, i)
	end
	return made
end

-- Counts per interval; frames that arrive while the burst settles belong to the last one.
local function counts(plan)
	local last = math.max(1, math.ceil(plan.seconds / plan.interval_s - 1e-9))
	local found = {}
	for i = 1, last do
		found[i] = 0
	end
	return found, function(elapsed, n)
		local at = math.min(math.floor(elapsed / plan.interval_s) + 1, last)
		found[at] = found[at] + n
	end
end

local function packets(receivers)
	local sum = 0
	for _, one in ipairs(receivers) do
		sum = sum + one.packets
	end
	return sum
end

local function results(senders, receivers, shared, tx, rx)
	local function numbers(list, key)
		return each(list, function(one) return one[key] end)
	end
	shared.seen, shared.flow_next = nil, nil -- private to the task
	shared.late, shared.lateness = 0, latencies.new()
	for _, one in ipairs(senders) do
		shared.late = shared.late + one.late
		latencies.merge(shared.lateness, one.lateness)
	end
	return { tx = tx, rx = rx, sent = numbers(senders, "sent"), next = numbers(senders, "sequence"),
		received = numbers(receivers, "packets"), shared = shared, sent_s = senders.ended_s }
end

-- `streams[i]` is the stream of `txQueues[i]`. Returns a table of plain values; nil means that the task died.
return function(plan, txQueues, streams, rxQueues)
	local shared = receiver.shared(plan)
	local senders = each(txQueues, function(queue, i) return sender.new(plan, queue, streams[i]) end)
	local receivers = each(rxQueues, function(queue) return receiver.new(plan, queue, shared) end)
	local tx, count_tx = counts(plan)
	local rx, count_rx = counts(plan)
	local wanted = orders.watch(mg.getTime())
	local elapsed = mg.getTime() - plan.begin
	local window -- frames received by the end of the window, and its time
	while elapsed < plan.seconds + plan.settle_s and mg.running() and wanted(plan.begin + elapsed) do
		if elapsed >= 0 and elapsed < plan.seconds then
			for _, one in ipairs(senders) do
				count_tx(elapsed, one:step(elapsed))
			end
			senders.ended_s = mg.getTime() - plan.begin
		end
		if elapsed >= plan.seconds and #receivers > 0 and not window then
			window = { packets = packets(receivers), s = elapsed }
		end
		for _, one in ipairs(receivers) do
			count_rx(math.max(elapsed, 0), one:step())
		end
		elapsed = mg.getTime() - plan.begin
		if #receivers == 0 and elapsed >= plan.seconds then
			break
		end
	end
	local done = results(senders, receivers, shared, tx, rx)
	done.interrupted, done.window = not (mg.running() and wanted(plan.begin + elapsed)), window
	return done
end
