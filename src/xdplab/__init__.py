"""xdplab: an XDP testbed you drive from a notebook."""
