-- `MoonGen SCRIPT [--dpdk-config=FILE] ARGS`, without a NIC: luajit MoonGen.lua DOUBLE SCRIPT ARGS.
local double, script = arg[1], arg[2]
package.path = double .. "/?.lua;" .. script:match("(.*)/") .. "/?.lua;" .. package.path

local parser = { options = {} }

local option = {}
option.__index = option

function option:convert(how)
	self.how = how
	return self
end

function parser:description() return self end

function parser:option(name)
	local made = setmetatable({}, option)
	self.options[name] = made
	return made
end

function parser:parse()
	local args, i = {}, 3
	while i <= #arg do
		if not arg[i]:match("^%-%-dpdk%-config=") then
			local known = self.options[arg[i]]
			if not known then
				io.stderr:write("Error: unknown option '" .. arg[i] .. "'\n")
				os.exit(1)
			end
			local value = arg[i + 1]
			args[arg[i]:sub(3):gsub("-", "_")] = known.how and known.how(value) or value
			i = i + 1
		end
		i = i + 1
	end
	return args
end

print("\27[1;37m[INFO]  a log that is not ours\27[0m")
dofile(script)
local args = configure(parser)
local ok, message = pcall(master, args)

local record = os.getenv("XDPLAB_RECORD")
if record then
	local file = assert(io.open(record, "wb"))
	for _, bytes in ipairs(require("wire").record) do
		file:write(string.char(math.floor(#bytes / 256), #bytes % 256), bytes)
	end
	file:close()
end
if not ok then
	print("[FATAL] Lua error in task master: " .. tostring(message))
	os.exit(1)
end
local left = require("memory").taken
if left ~= 0 then
	print("buffers lost: " .. left)
	os.exit(3)
end
