-- Tasks as coroutines over one clock. A task that fails prints a word and returns nothing, as MoonGen's do.
local clock = require "clock"

local mg = { config = { cores = {} }, tasks = {} }

for core = 0, tonumber(os.getenv("XDPLAB_CORES") or 2) - 1 do
	mg.config.cores[core + 1] = core
end

local task = {}
task.__index = task

-- Only what MoonGen can serialise may be an argument: numbers, strings, booleans, tables of such, devices, queues.
local function serialisable(value, seen)
	if type(value) ~= "table" or value.__serialize then
		assert(type(value) ~= "function" and type(value) ~= "cdata" and type(value) ~= "userdata", "cannot be serialised")
		return
	end
	for key, inner in pairs(value) do
		assert(inner == inner and inner ~= math.huge, "serpent cannot carry nan or inf: " .. tostring(key))
		serialisable(inner)
	end
end

function mg.startTask(name, ...)
	assert(#mg.tasks < #mg.config.cores - 1, "no free core")
	serialisable { ... }
	local started = setmetatable({ run = coroutine.create(_G[name] or error("no global " .. name)), args = { ... } }, task)
	mg.tasks[#mg.tasks + 1] = started
	return started
end

local function step(one)
	if coroutine.status(one.run) == "dead" then
		return
	end
	local ok, result = coroutine.resume(one.run, unpack(one.args))
	if not ok then
		print("[FATAL] Lua error in task: " .. tostring(result))
	elseif coroutine.status(one.run) == "dead" then
		serialisable(result)
		one.result = result
	end
end

local function remove(one)
	for i, other in ipairs(mg.tasks) do
		if other == one then
			table.remove(mg.tasks, i)
		end
	end
end

function task:wait()
	while coroutine.status(self.run) ~= "dead" do
		for _, one in ipairs { unpack(mg.tasks) } do
			step(one)
		end
	end
	remove(self)
	return self.result
end

function mg.running() return true end

function mg.stop() end

function mg.getTime()
	clock.pass(2e-6)
	return clock.now
end

function mg.getCycles()
	return 1ULL * math.floor(clock.now * clock.HZ)
end

function mg.getCyclesFrequency() return clock.HZ end

function mg.sleepMicros(t) clock.pass(t / 1e6) end

return mg
