"""What a packet costs, exactly: instructions by source line and kernel function, counted in a guest under emulation."""
