-- SPDX-License-Identifier: Apache-2.0
-- One JSON object per line. Fields keep their order; `null` is a value of its own, because a Lua table cannot hold nil.
local json = { null = {} }

local function number(value)
	if value ~= value or value == math.huge or value == -math.huge then
		error("a result is not a finite number: a counter or a clock went wrong")
	end
	return value % 1 == 0 and ("%.0f"):format(value) or ("%.9g"):format(value)
end

local function quoted(text)
	return '"' .. text:gsub('[%c"\\\127-\255]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

local encode

local function list(values)
	local words = {}
	for i, value in ipairs(values) do
		words[i] = encode(value)
	end
	return "[" .. table.concat(words, ",") .. "]"
end

-- An object as a value: its fields in their order.
local object = {}

function json.object(fields)
	return setmetatable({ fields = fields }, object)
end

local function fields_of(fields)
	local words = {}
	for i, field in ipairs(fields) do
		words[i] = quoted(field[1]) .. ":" .. encode(field[2])
	end
	return "{" .. table.concat(words, ",") .. "}"
end

local function of_table(value)
	if value == json.null then
		return "null"
	end
	return getmetatable(value) == object and fields_of(value.fields) or list(value)
end

local encoders = {
	number = number,
	string = quoted,
	boolean = tostring,
	table = of_table,
}

encode = function(value)
	return encoders[type(value)](value)
end

-- json.line{{"type", "ready"}, {"queues", 2}}
function json.line(fields)
	return fields_of(fields) .. "\n"
end

return json
