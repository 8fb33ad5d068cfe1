"""Search: a DUT's throughput by the standard definitions.

MRR is the rate that comes back at maximum offered load; NDR and PDR are searched by MLRsearch; latency is measured at
shares of the PDR; the largest N whose throughput still reaches a share is found by bisection. A search uses a lab only
through `offer`, so it works with any generator, and in tests with a model of a DUT.
"""
