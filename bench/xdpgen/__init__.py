"""Parts of bench/xdpgen_rates.py: its own lab, and the sender of bare live frames that it measures against."""
