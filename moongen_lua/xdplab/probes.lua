-- SPDX-License-Identifier: Apache-2.0
-- Latency by the NIC's clock: PTP probes of at least 84 bytes beside the traffic, on a queue pair of their own.
local mg = require "moongen"
local timestamping = require "timestamping"
local latencies = require "xdplab.latencies"
local orders = require "xdplab.orders"

local PROBES_A_SECOND = 1000
local LOST_AFTER_MS = 15
local SHORTEST = 80 -- without FCS

-- MoonGen's own probes go to a multicast address, which a NIC filters and a DUT may not forward.
local function addressed(plan)
	return function(buf)
		local packet = buf:getUdpPacket()
		packet.eth.dst:setString(plan.probe_dst_mac)
		packet.eth.src:setString(plan.probe_src_mac)
		packet.ip4.dst:set(plan.dst_ip)
		packet.ip4.src:set(plan.src_ip)
	end
end

-- Returns the histogram and the numbers of sent and lost probes. On a NIC without time stamps the task dies.
return function(plan, txQueue, rxQueue)
	local stamper = timestamping:newUdpTimestamper(txQueue, rxQueue)
	local found, sent, lost = latencies.new(), 0, 0
	local bytes, address = math.max(plan.bytes, SHORTEST), addressed(plan)
	local wanted = orders.watch(mg.getTime())
	while mg.getTime() < plan.begin + plan.seconds and mg.running() and wanted(mg.getTime()) do
		local ns = stamper:measureLatency(bytes, address, LOST_AFTER_MS)
		sent = sent + 1
		if ns then
			latencies.add(found, ns)
		else
			lost = lost + 1
		end
		mg.sleepMicros(1e6 / PROBES_A_SECOND)
	end
	return { latencies = found, sent = sent, lost = lost }
end
