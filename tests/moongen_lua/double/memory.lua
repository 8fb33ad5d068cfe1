-- Buffers as MoonGen's: taken anew each round, dirty with what they held before, and none may be lost.
local ffi = require "ffi"

local memory = { taken = 0 }

local buffer = {}
buffer.__index = buffer

function buffer:getBytes() return self.bytes end

function buffer:getSize() return self.size end

local function new_buffer(size)
	local made = setmetatable({ bytes = ffi.new("uint8_t[2048]"), size = size }, buffer)
	ffi.fill(made.bytes, 2048, 0xa5)
	return made
end

function memory.from(bytes)
	local made = new_buffer(#bytes)
	ffi.copy(made.bytes, bytes, #bytes)
	return made
end

local array = {}

function array.__index(self, key)
	return type(key) == "number" and self.slots[key] or array[key]
end

function array:allocN(size, n)
	assert(n <= self.most, "more than the array holds")
	self.size = n
	for i = 1, n do
		self.slots[i] = new_buffer(size)
	end
	memory.taken = memory.taken + n
end

function array:free(n)
	memory.taken = memory.taken - n
end

function memory.bufArray(n)
	return setmetatable({ slots = {}, size = n or 63, most = n or 63 }, array)
end

function memory.createMemPool(fill)
	fill(new_buffer(1522))
	return { bufArray = function(_, n) return memory.bufArray(n) end }
end

return memory
