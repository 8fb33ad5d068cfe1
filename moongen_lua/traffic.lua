-- SPDX-License-Identifier: Apache-2.0
-- MoonGen as a traffic generator of xdplab: MRR (--load max), paced loss trials (--load PPS), latency (--stamps).
--
--   MoonGen traffic.lua --results FILE --port 0 --frame-bytes 64 [--load max|PPS] …
--
-- Standard input carries one command per line, `burst NAME SECONDS`; its end ends the session. Results go to FILE, because
-- MoonGen writes its log to standard output. The exit code is not 0 if anything failed, also in a task.
local device = require "device"
local mg = require "moongen"
local frame = require "xdplab.frame"
local lines = require "xdplab.lines"
local run_burst = require "xdplab.burst"

-- startTask finds only globals of this script.
work = require "xdplab.work"

function probes(...)
	return require "xdplab.probes"(...)
end

-- Drivers without RSS and without filters that steer frames to queues.
local SOFTWARE = { net_af_packet = true, net_ring = true, net_pcap = true, net_tap = true, net_null = true }

-- name, default, conversion
local OPTIONS = {
	{ "results", nil }, { "port", 0, tonumber }, { "queues", 1, tonumber }, { "frame-bytes", 64, tonumber },
	{ "flows", 64, tonumber }, { "load", "max" }, { "run-id", "0" }, { "src-mac", "02:00:00:00:00:01" },
	{ "dst-mac", "02:00:00:00:00:02" }, { "src-ip", "198.18.0.1" }, { "dst-ip", "198.19.0.1" },
	{ "src-ip-stride", "0.0.0.0" }, { "dst-ip-stride", "0.0.0.1" }, { "src-port", 1024, tonumber },
	{ "dst-port", 50220, tonumber }, { "port-stride", 0, tonumber }, { "stamp", "all" }, { "stamps", "software" }, { "stamp-seed", 0, tonumber },
	{ "settle", 0.05, tonumber }, { "max-frames", nil, tonumber }, { "batch", 63, tonumber },
}

function configure(parser)
	parser:description("Sends the bursts that standard input asks for, and counts what comes back.")
	for _, option in ipairs(OPTIONS) do
		local added = parser:option("--" .. option[1])
		if option[3] then
			added:convert(option[3])
		end
	end
	return parser:parse()
end

local function resolved(args)
	local given = {}
	for _, option in ipairs(OPTIONS) do
		local key = option[1]:gsub("-", "_")
		given[key] = args[key] == nil and option[2] or args[key]
	end
	given.rate_pps = given.load ~= "max" and (tonumber(given.load) or error("--load must be `max` or frames per second")) or nil
	given.run_id = tonumber(given.run_id, 16) or error("--run-id must be hexadecimal")
	if given.frame_bytes < 64 or given.frame_bytes > 1518 then
		error("--frame-bytes must be 64 to 1518, FCS included")
	end
	return given
end

local function stamp_every(stamp)
	return ({ all = 1, none = 0 })[stamp] or tonumber(stamp) or error("--stamp must be `all`, `none` or a number")
end

local function plan_of(given, session, seconds)
	return {
		seconds = seconds, settle_s = given.settle, bytes = given.frame_bytes - frame.FCS_BYTES, flows = given.flows,
		streams = given.queues, rate_pps = given.rate_pps, batch = given.batch, max_frames = given.max_frames,
		magic = frame.magic_of(given.run_id), stamp_every = session.stamp_every, stamp_seed = session.seed, first = session.first,
		interval_s = math.min(0.1, seconds / 4), longest_ns = (seconds + given.settle + 1) * 1e9,
		src_mac = frame.mac(given.src_mac), dst_mac = frame.mac(given.dst_mac), src_ip = frame.ip(given.src_ip),
		dst_ip = frame.ip(given.dst_ip), src_ip_stride = frame.ip(given.src_ip_stride),
		dst_ip_stride = frame.ip(given.dst_ip_stride), src_port = given.src_port, dst_port = given.dst_port,
		port_stride = given.port_stride, probe_src_mac = given.src_mac, probe_dst_mac = given.dst_mac,
	}
end

-- Checks that port and queues exist: MoonGen itself would die of a signal.
local function require_port(given, queues)
	local ports = device.numDevices()
	if given.port >= ports then
		error({ step = "config", message = ("DPDK has %d ports, and no port %d"):format(ports, given.port) })
	end
	local info = device.get(given.port):getInfo()
	local most = math.min(info.max_rx_queues, info.max_tx_queues)
	if queues > most then
		error({ step = "unsupported", message = ("the port has %d queues, but %d were requested"):format(most, queues) })
	end
end

local function open(given)
	require_port(given, given.queues + (given.stamps == "hardware" and 1 or 0))
	local driver = device.get(given.port):getDriverName()
	local hardware = given.stamps == "hardware"
	local extra = hardware and 1 or 0
	local rss = given.queues > 1 and not SOFTWARE[driver] and given.queues or nil
	local opened = device.config { port = given.port, txQueues = given.queues + extra, rxQueues = given.queues + extra,
		rssQueues = rss }
	device.waitForLinks()
	local cores = mg.config.cores
	local seed = given.stamp_seed ~= 0 and given.stamp_seed or os.time() % 2 ^ 31
	local first = {}
	for stream = 1, given.queues do
		first[stream] = 0
	end
	return { device = opened, seed = seed, driver = driver, rx_queues = given.queues, stamps = given.stamps, first = first,
		stamp_every = given.stamps == "software" and stamp_every(given.stamp) or 0,
		cores = cores, tasks = #cores - 1 - extra >= 2 and 2 or 1 }
end

local function serve(given, session, results)
	local bursts = 0
	for line in io.lines() do
		local name, seconds = line:match("^burst (%S+) (%S+)$")
		if not tonumber(seconds) then
			error({ step = "command", message = "not a command: " .. line })
		end
		local plan = plan_of(given, session, tonumber(seconds))
		local found = run_burst(plan, session)
		if found.interrupted then
			error({ step = "burst", message = "ended early: standard input was closed, or a signal came" })
		end
		session.first, session.seed = found.next, session.seed + 1
		bursts = bursts + 1
		results:write(lines.burst(name, plan, found))
		results:flush()
	end
	results:write(lines.detached(bursts))
end

-- Write the failure as a result, and exit with an error code.
local function fail(results, failure)
	local step, message = "script", tostring(failure)
	if type(failure) == "table" then
		step, message = failure.step, failure.message
	end
	message = message:gsub("\27%[[%d;]*m", ""):gsub("%s*\n.*", "") -- one line, without MoonGen's colours and traceback
	results:write(lines.failure(step, message))
	results:close()
	mg.stop()
	os.exit(1)
end

function master(args)
	local results = assert(io.open(args.results or error("--results is missing"), "w"))
	local done, failure = pcall(function()
		local given = resolved(args)
		local session = open(given)
		results:write(lines.ready(session, given))
		results:flush()
		serve(given, session, results)
	end)
	if not done then
		fail(results, failure)
	end
	results:close()
end
