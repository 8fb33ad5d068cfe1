-- SPDX-License-Identifier: Apache-2.0
-- Standard input gives the orders. If it ends during a burst, nothing waits for the burst any more.
local ffi = require "ffi"

ffi.cdef [[
	struct xdplab_pollfd { int fd; short events; short revents; };
	int poll(struct xdplab_pollfd *fds, unsigned long count, int timeout_ms);
]]

local POLLIN, POLLHUP = 1, 16
local LOOK_EVERY_S = 0.1

local orders = {}

-- Whether the other end of the pipe is closed and the pipe is empty. A file or a terminal has no other end.
local function ended()
	local look = ffi.new("struct xdplab_pollfd[1]", { { 0, POLLIN, 0 } })
	return ffi.C.poll(look, 1, 0) > 0 and look[0].revents == POLLHUP
end

-- Returns a function of the time that says whether to continue; it checks ten times per second.
function orders.watch(begin)
	local next_look, gone = begin, false
	return function(now)
		if now >= next_look and not gone then
			next_look, gone = now + LOOK_EVERY_S, ended()
		end
		return not gone
	end
end

return orders
