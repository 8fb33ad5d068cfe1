"""What bench/xdpgen_rates.py needs: a lab of its own, and the bare live frames it measures against."""
