-- SPDX-License-Identifier: Apache-2.0
-- The lines of one burst and of the session, in the common format of all generators.
local json = require "xdplab.json"
local latencies = require "xdplab.latencies"

local NOT_RECYCLED = "no frame that comes back is sent again"
local FCS_BYTES = require("xdplab.frame").FCS_BYTES

local lines = {}

local null = json.null

local function or_null(value)
	return value == nil and null or value
end

local function sum(list)
	local total = 0
	for _, value in ipairs(list) do
		total = total + value
	end
	return total
end

function lines.ready(session, given)
	return json.line {
		{ "type", "ready" }, { "engine", session.stamps == "hardware" and "moongen-hw" or "moongen" }, { "interface", given.port }, { "driver", session.driver },
		{ "queues", given.queues }, { "queues_reached", given.queues }, { "cpus", session.cores },
		{ "tasks", session.tasks }, { "sched_policy", "SCHED_OTHER (DPDK polls on cores of its own)" },
		{ "frame_bytes", given.frame_bytes }, { "flows", given.flows }, { "rate_requested_pps", or_null(given.rate_pps) },
		{ "run_id", ("%04x"):format(given.run_id) }, { "src_mac", given.src_mac }, { "dst_mac", given.dst_mac },
		{ "src_ip", given.src_ip }, { "dst_ip", given.dst_ip }, { "src_ip_stride", given.src_ip_stride },
		{ "dst_ip_stride", given.dst_ip_stride }, { "src_port", given.src_port }, { "dst_port", given.dst_port },
		{ "port_stride", given.port_stride }, { "stamps", session.stamps }, { "stamp_every", session.stamp_every },
		{ "settle_s", given.settle }, { "batch", given.batch }, { "receives", true },
	}
end

local function intervals(name, plan, found)
	local text = {}
	for i, tx in ipairs(found.tx) do
		text[i] = json.line {
			{ "type", "interval" }, { "burst", name }, { "t_s", math.min(i * plan.interval_s, plan.seconds) },
			{ "tx_packets", tx }, { "rx_packets", found.rx[i] },
		}
	end
	return table.concat(text)
end

local function limit(plan, sent)
	local wanted = plan.rate_pps and math.min(plan.rate_pps * plan.seconds, plan.max_frames or math.huge)
	if wanted and sent < 0.999 * wanted then
		return ("the generator sent %.2f %% of the requested rate"):format(100 * sent / wanted)
	end
	return nil
end

-- The reason why a field of the summary is null, by field.
local function missing(plan, found)
	local why = {
		{ "tx_pause_max_ns", "MoonGen's sender does not record its pauses" },
		{ "tx_paused_ns", "MoonGen's sender does not record its pauses" },
		{ "tx_busy_cores", "DPDK polls: its cores are busy whether they send or not" },
		{ "damaged_packets", "the scripts do not check payloads" },
		{ "altered_packets", "the scripts do not check headers" },
		{ "rx_unstamped", "the scripts do not ask XDP for the device's time stamps" },
		{ "tx_stamped", "the scripts have no AF_XDP sockets to ask for stamps" },
		{ "tx_unstamped", "the scripts have no AF_XDP sockets to ask for stamps" },
		{ "unmatched_stamps", "the scripts have no AF_XDP sockets to ask for stamps" },
		{ "tx_by_size", "the scripts send frames of one size" },
		{ "rx_by_size", "the scripts send frames of one size" },
		{ "rx_flows", "the scripts do not count flows" }, { "rx_by_rank", "the scripts do not count flows" },
		{ "tx_restored", NOT_RECYCLED }, { "tx_unrestored_packets", NOT_RECYCLED },
	}
	if not plan.rate_pps then
		why[#why + 1] = { "rate_requested_pps", "the load is max" }
		why[#why + 1] = { "tx_late_packets", "at maximum load no frame is due" }
		why[#why + 1] = { "tx_late_max_ns", "at maximum load no frame is due" }
	end
	if plan.stamp_every <= 1 then
		why[#why + 1] = { "stamp_seed", "no frame is drawn: all are stamped, or none" }
	end
	if not found.probes then
		why[#why + 1] = { "probes_sent", "the frames themselves are stamped, in software" }
		why[#why + 1] = { "probes_lost", "the frames themselves are stamped, in software" }
	end
	return json.object(why)
end

local function summary(name, plan, found)
	local sent, received, shared = sum(found.sent), sum(found.received), found.shared
	return json.line {
		{ "type", "summary" }, { "burst", name }, { "duration_s", math.max(plan.seconds, found.sent_s or 0) },
		{ "tx_packets", sent }, { "tx_errors", found.device.tx_errors }, { "tx_by_queue", found.sent },
		{ "rate_requested_pps", or_null(plan.rate_pps) }, { "rx_missing", null }, { "rx_packets", received },
		{ "lost_packets", math.max(0, sent - (received - shared.duplicates)) }, { "duplicates", shared.duplicates },
		{ "reordered", shared.reordered }, { "stale_packets", shared.stale }, { "foreign_packets", shared.foreign },
		{ "bad_run_id", shared.bad_run_id }, { "bad_stamps", shared.bad_stamps }, { "rx_by_queue", found.received },
		{ "rx_window_packets", found.window and found.window.packets or null },
		{ "rx_window_s", found.window and found.window.s or null },
		{ "tx_pause_max_ns", null }, { "tx_paused_ns", null }, { "tx_busy_cores", null },
		{ "tx_late_packets", or_null(plan.rate_pps and shared.late) },
		{ "tx_late_max_ns", or_null(plan.rate_pps and shared.lateness.max) },
		{ "limited", or_null(limit(plan, sent)) }, { "interrupted", found.interrupted },
		{ "device_tx_packets", found.device.tx }, { "device_rx_packets", found.device.rx },
		{ "device_rx_missed", found.device.rx_missed },
		{ "probes_sent", found.probes and found.probes.sent or null },
		{ "probes_lost", found.probes and found.probes.lost or null },
		{ "damaged_packets", null }, { "altered_packets", null }, { "rx_unstamped", null },
		{ "tx_stamped", null }, { "tx_unstamped", null }, { "unmatched_stamps", null },
		{ "tx_by_size", null }, { "rx_by_size", null }, { "rx_flows", null }, { "rx_by_rank", null },
		{ "tx_bytes", sent * (plan.bytes + FCS_BYTES) }, { "rx_bytes", shared.bytes + received * FCS_BYTES },
		{ "foreign_bytes", shared.foreign_bytes + shared.foreign * FCS_BYTES },
		{ "stamp_seed", plan.stamp_every > 1 and plan.stamp_seed or null },
		{ "tx_restored", null }, { "tx_unrestored_packets", null },
		{ "missing", missing(plan, found) },
	}
end

local function histogram(name, of, l)
	return json.line {
		{ "type", "histogram" }, { "burst", name }, { "of", of }, { "unit", "ns" }, { "scheme", "log-linear" },
		{ "sub_bits", latencies.SUB_BITS }, { "count", l.count }, { "min", or_null(l.min) }, { "max", or_null(l.max) },
		{ "sum", l.sum }, { "buckets", latencies.pairs(l) },
	}
end

-- A NIC stamps separate probes, which have no schedule and so no due time.
local function histograms(name, plan, found)
	local shared = found.shared
	local text = plan.rate_pps and histogram(name, "lateness", shared.lateness) or ""
	if found.probes then
		return text .. histogram(name, "probes", shared.latencies)
	end
	return text .. (plan.rate_pps and histogram(name, "from_due", shared.from_due) or "")
		.. histogram(name, "from_sent", shared.latencies)
end

function lines.burst(name, plan, found)
	return intervals(name, plan, found) .. summary(name, plan, found) .. histograms(name, plan, found)
end

function lines.detached(bursts)
	return json.line { { "type", "detached" }, { "bursts", bursts } }
end

function lines.failure(step, message)
	return json.line { { "type", "error" }, { "step", step }, { "error", null }, { "message", message } }
end

return lines
