-- SPDX-License-Identifier: Apache-2.0
-- A test frame, byte for byte as xdpgen sends it (native/common/payload.h): Ethernet, IPv4, UDP, 18 bytes of payload.
-- All lengths here are without the FCS: a "64-byte frame" has 60 bytes.
local ffi = require "ffi"
local bit = require "bit"

local frame = {
	FCS_BYTES = 4,
	SHORTEST = 60,
	MAGIC = 0x78646c62, -- "xdlb"
	STAMPED = 0x8000,
	FLOW_MASK = 0x7fff,
}

local HEAD_BYTES = 48 -- headers, magic and flow: the same in every frame of a flow
local MAGIC_AT, FLOW_AT, STAMP_AT, SEQUENCE_AT = 42, 46, 48, 56
local u8p, u16p, u32p, u64p = ffi.typeof("uint8_t*"), ffi.typeof("uint16_t*"), ffi.typeof("uint32_t*"), ffi.typeof("uint64_t*")

function frame.mac(text)
	local bytes = {}
	for byte in text:gmatch("%x%x") do
		bytes[#bytes + 1] = tonumber(byte, 16)
	end
	return #bytes == 6 and bytes or error("not a MAC address: " .. text)
end

function frame.ip(text)
	local a, b, c, d = text:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
	return a and ((a * 256 + b) * 256 + c) * 256 + d or error("not an IPv4 address: " .. text)
end

local function put(head, at, value, bytes)
	for i = bytes - 1, 0, -1 do
		head[at + i] = value % 256
		value = math.floor(value / 256)
	end
end

-- RFC 1071, over the 20 bytes of the IPv4 header.
local function checksum(head)
	local sum = 0
	for at = 14, 32, 2 do
		sum = sum + head[at] * 256 + head[at + 1]
	end
	sum = sum % 65536 + math.floor(sum / 65536)
	return 65535 - (sum % 65536 + math.floor(sum / 65536))
end

local function fill(head, plan, flow)
	local address, ip_bytes = flow % plan.flows, plan.bytes - 14
	for i = 1, 6 do
		head[i - 1], head[i + 5] = plan.dst_mac[i], plan.src_mac[i]
	end
	put(head, 12, 0x0800, 2)
	put(head, 14, 0x4500, 2)
	put(head, 16, ip_bytes, 2)
	put(head, 22, 64 * 256 + 17, 2) -- TTL, UDP
	put(head, 26, (plan.src_ip + plan.src_ip_stride * address) % 2 ^ 32, 4)
	put(head, 30, (plan.dst_ip + plan.dst_ip_stride * address) % 2 ^ 32, 4)
	put(head, 24, checksum(head), 2)
	put(head, 34, (plan.src_port + plan.port_stride * address) % 65536, 2)
	put(head, 36, plan.dst_port, 2)
	put(head, 38, ip_bytes - 20, 2)
	put(head, MAGIC_AT, plan.magic, 4)
	put(head, FLOW_AT, flow, 2)
end

-- The heads of one stream's flows (flow number modulo `streams` is `stream`), and their number.
function frame.heads(plan, stream, streams)
	local last = math.max(plan.flows, streams) - 1
	local count = math.floor((last - stream) / streams) + 1
	local heads = ffi.new("uint8_t[?]", count * HEAD_BYTES)
	for i = 0, count - 1 do
		fill(heads + i * HEAD_BYTES, plan, stream + i * streams)
	end
	return heads, count
end

-- Write every byte that a lap through the DUT may have changed.
function frame.write(bytes, heads, index, sequence, stamp)
	ffi.copy(bytes, heads + index * HEAD_BYTES, HEAD_BYTES)
	ffi.cast(u64p, bytes + STAMP_AT)[0] = stamp or 0
	if stamp then
		bytes[FLOW_AT] = bit.bor(bytes[FLOW_AT], 0x80)
	end
	ffi.cast(u32p, bytes + SEQUENCE_AT)[0] = bit.bswap(sequence)
end

function frame.magic_of(run_id)
	return frame.MAGIC - frame.MAGIC % 65536 + bit.bxor(frame.MAGIC % 65536, run_id)
end

-- The unsigned number at `at`.
local function read32(bytes, at)
	return bit.bswap(ffi.cast(u32p, bytes + at)[0]) % 2 ^ 32
end

function frame.magic(bytes)
	return read32(bytes, MAGIC_AT)
end

function frame.sequence(bytes)
	return read32(bytes, SEQUENCE_AT)
end

-- The flow and, if the frame is stamped, its stamp.
function frame.flow(bytes)
	local field = bytes[FLOW_AT] * 256 + bytes[FLOW_AT + 1]
	local stamp = field >= frame.STAMPED and ffi.cast(u64p, bytes + STAMP_AT)[0] or nil
	return field % frame.STAMPED, stamp
end

return frame
