-- SPDX-License-Identifier: Apache-2.0
-- One burst: starts tasks on the available cores, waits for them, and merges their results.
local mg = require "moongen"
local latencies = require "xdplab.latencies"

local START_S = 0.3 -- a task is a new Lua VM: it fills its buffers before the burst begins

local function died(name)
	error({ step = "task", message = "the task `" .. name .. "` died; MoonGen's log says why" })
end

local function start(plan, session)
	local tx, rx, streams = {}, {}, {}
	for i = 0, plan.streams - 1 do
		tx[i + 1], streams[i + 1] = session.device:getTxQueue(i), i
	end
	for i = 0, session.rx_queues - 1 do
		rx[i + 1] = session.device:getRxQueue(i)
	end
	if session.tasks == 1 then
		return { mg.startTask("work", plan, tx, streams, rx) }
	end
	return { mg.startTask("work", plan, {}, {}, rx), mg.startTask("work", plan, tx, streams, {}) }
end

local function start_probes(plan, session)
	if session.stamps ~= "hardware" then
		return nil
	end
	local last = plan.streams
	return mg.startTask("probes", plan, session.device:getTxQueue(last), session.device:getRxQueue(session.rx_queues))
end

local function add_list(into, from)
	for i, value in ipairs(from) do
		into[i] = (into[i] or 0) + value
	end
end

local function add_shared(into, from)
	for key, value in pairs(from) do
		if type(value) == "table" then
			latencies.merge(into[key], value)
		else
			into[key] = (into[key] or 0) + value
		end
	end
end

local function collect(tasks)
	local whole = { tx = {}, rx = {}, sent = {}, received = {}, next = {}, shared = {
		latencies = latencies.new(), from_due = latencies.new(), lateness = latencies.new() } }
	for _, task in ipairs(tasks) do
		local part = task:wait()
		if type(part) ~= "table" then
			died("work")
		end
		for _, key in ipairs { "tx", "rx", "sent", "received", "next" } do
			add_list(whole[key], part[key])
		end
		add_shared(whole.shared, part.shared)
		whole.interrupted = whole.interrupted or part.interrupted
		whole.sent_s = part.sent_s or whole.sent_s
		whole.window = part.window or whole.window
	end
	return whole
end

local function registers(device)
	local stats = device:getStats()
	return { tx = tonumber(stats.opackets), tx_errors = tonumber(stats.oerrors), rx = tonumber(stats.ipackets),
		rx_missed = tonumber(stats.imissed) + tonumber(stats.rx_nombuf) }
end

-- Returns all counts. Raises {step, message} if a task died.
return function(plan, session)
	local before = registers(session.device)
	plan.begin = mg.getTime() + START_S
	local tasks = start(plan, session)
	local probing = start_probes(plan, session)
	local whole = collect(tasks)
	if probing then
		local probes = probing:wait()
		if type(probes) ~= "table" then
			died("probes")
		end
		whole.shared.latencies, whole.probes = probes.latencies, probes
	end
	whole.device = registers(session.device)
	for key, value in pairs(before) do
		whole.device[key] = whole.device[key] - value
	end
	return whole
end
