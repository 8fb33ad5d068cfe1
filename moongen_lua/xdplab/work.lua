-- SPDX-License-Identifier: Apache-2.0
-- What a task does in one burst: it sends on some queues and drains some, both, or one of the two.
-- With two cores there is room for one task, and it does everything.
local mg = require "moongen"
local receiver = require "xdplab.receiver"
local sender = require "xdplab.sender"

local INTERVAL_S = 0.1

local function each(queues, make)
	local made = {}
	for i, queue in ipairs(queues) do
		made[i] = make(queue, i)
	end
	return made
end

-- Counts by tenth of a second; what comes while the burst settles belongs to the last one.
local function counts(seconds)
	local last = math.max(1, math.ceil(seconds / INTERVAL_S - 1e-9))
	local found = {}
	for i = 1, last do
		found[i] = 0
	end
	return found, function(elapsed, n)
		local at = math.min(math.floor(elapsed / INTERVAL_S) + 1, last)
		found[at] = found[at] + n
	end
end

local function results(senders, receivers, shared, tx, rx)
	local function numbers(list, key)
		return each(list, function(one) return one[key] end)
	end
	shared.seen = nil -- the tasks' own
	return { tx = tx, rx = rx, sent = numbers(senders, "sent"), next = numbers(senders, "sequence"),
		received = numbers(receivers, "packets"), shared = shared, sent_s = senders.ended_s }
end

-- `streams[i]` is the stream of `txQueues[i]`. Returns a table of plain values; nil means that the task died.
return function(plan, txQueues, streams, rxQueues)
	local shared = receiver.shared(plan)
	local senders = each(txQueues, function(queue, i) return sender.new(plan, queue, streams[i]) end)
	local receivers = each(rxQueues, function(queue) return receiver.new(plan, queue, shared) end)
	local tx, count_tx = counts(plan.seconds)
	local rx, count_rx = counts(plan.seconds)
	local elapsed = mg.getTime() - plan.begin
	while elapsed < plan.seconds + plan.settle_s and mg.running() do
		if elapsed >= 0 and elapsed < plan.seconds then
			for _, one in ipairs(senders) do
				count_tx(elapsed, one:step(elapsed))
			end
			senders.ended_s = mg.getTime() - plan.begin
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
	done.interrupted = not mg.running()
	return done
end
