"""Search: how fast a DUT can go by the field's definitions.

MRR is what comes back at maximum offered load; NDR and PDR are searched by MLRsearch; latency is measured at shares of
the PDR; the largest N whose throughput still reaches a share is bisected. `offer` is the one thing a search does to a
lab, so that any generator, and a test's model of a DUT, can be searched.
"""
