-- SPDX-License-Identifier: Apache-2.0
-- The shortest sender that MoonGen can be: equal frames, as fast as the device takes them, on each queue in turn.
--   MoonGen moongen.lua --dpdk-config=FILE BYTES QUEUES     BYTES without the FCS
local device = require "device"
local memory = require "memory"
local mg = require "moongen"

function configure(parser)
	parser:argument("bytes"):convert(tonumber)
	parser:argument("queues"):convert(tonumber)
	return parser:parse()
end

-- Sends from the first core itself: a task of its own would need a second CPU.
function master(args)
	local opened = device.config { port = 0, txQueues = args.queues, rxQueues = args.queues }
	device.waitForLinks()
	local pool = memory.createMemPool(function(buf)
		buf:getUdpPacket():fill {
			ethSrc = "02:78:64:70:00:01", ethDst = "02:78:64:70:00:02", ip4Src = "198.18.0.1", ip4Dst = "198.19.0.1",
			pktLength = args.bytes,
		}
	end)
	local bufs, queues = pool:bufArray(), {}
	for number = 1, args.queues do
		queues[number] = opened:getTxQueue(number - 1)
	end
	while mg.running() do
		for _, queue in ipairs(queues) do
			bufs:alloc(args.bytes)
			queue:send(bufs)
		end
	end
end
