-- SPDX-License-Identifier: Apache-2.0
-- A log-linear histogram in ns: one bucket per value below 128, then 128 buckets per octave (at most 0.8 % wide).
-- It is a plain table: tasks hand it to the master, which merges and prints it.
local latencies = { SUB_BITS = 7 }

local SUB_BUCKETS = 2 ^ latencies.SUB_BITS

function latencies.new()
	return { count = 0, sum = 0, buckets = {} }
end

function latencies.lower_bound(value)
	if value < SUB_BUCKETS then
		return value
	end
	local _, exponent = math.frexp(value)
	local width = 2 ^ (exponent - 1 - latencies.SUB_BITS)
	return value - value % width
end

-- Add `value` in ns, rounded to an integer.
function latencies.add(found, value)
	value = math.floor(value + 0.5)
	local lower = latencies.lower_bound(value)
	found.buckets[lower] = (found.buckets[lower] or 0) + 1
	found.count, found.sum = found.count + 1, found.sum + value
	found.min = math.min(found.min or value, value)
	found.max = math.max(found.max or value, value)
end

function latencies.merge(into, from)
	for lower, count in pairs(from.buckets) do
		into.buckets[lower] = (into.buckets[lower] or 0) + count
	end
	into.count, into.sum = into.count + from.count, into.sum + from.sum
	if from.count > 0 then
		into.min = math.min(into.min or from.min, from.min)
		into.max = math.max(into.max or from.max, from.max)
	end
end

-- {lower bound, count} of every bucket that is not empty, ascending.
function latencies.pairs(found)
	local pairs_ = {}
	for lower, count in pairs(found.buckets) do
		pairs_[#pairs_ + 1] = { lower, count }
	end
	table.sort(pairs_, function(a, b) return a[1] < b[1] end)
	return pairs_
end

return latencies
