-- The double's time: it moves when somebody looks, sleeps or sends; nothing of a test depends on how fast it runs.
local clock = { now = 100, HZ = 2e9 }

function clock.pass(seconds)
	clock.now = clock.now + seconds
end

return clock
