#!/usr/bin/env python3
"""A double of dpdk-testpmd: answers the commands that the tool gives, with the lines of testpmd 22.11."""

import sys
import time

PORT = """
  ######################## NIC statistics for port 0  ########################
  RX-packets: {rx:<10} RX-missed: {missed:<10} RX-bytes:  0
  RX-errors: 0
  RX-nombuf:  0         
  TX-packets: {tx:<10} TX-errors: 0          TX-bytes:  0

  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
  ############################################################################
"""  # noqa: W291
STOPPED = """Telling cores to stop...
Waiting for lcores to finish...

  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: {rx:<14} RX-dropped: 0             RX-total: {rx}
  TX-packets: {tx:<14} TX-dropped: 0             TX-total: {tx}
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: {rx:<14} RX-dropped: 0             RX-total: {rx}
  TX-packets: {tx:<14} TX-dropped: 0             TX-total: {tx}
  ++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++

Done.
"""
RATE, LATE, MISSED = 1000, 7, 3
"""Frames per second; how many of a burst come when it is over, and are lost at the full ring of the port."""


def main() -> None:
    if "--no-port" in sys.argv:
        sys.stdout.write("EAL: Error - exiting with code: 1\n  Cause: No probed ethernet devices\n")
        sys.exit(1)
    mode, port, began, owed = "", {"rx": 0, "tx": 0, "missed": 0}, 0.0, 0
    for line in sys.stdin:
        words = line.split()
        if words[:2] == ["set", "fwd"]:
            mode = words[2]
            sys.stdout.write(f"Set {mode} packet forwarding mode\n")
        elif words == ["start"]:
            began = time.monotonic()
            sys.stdout.write(f"{mode} packet forwarding - ports=1 - cores=1 - streams=1\n")
        elif words == ["stop"] and mode == "flowgen":
            sent = int(RATE * (time.monotonic() - began))
            port = {"rx": port["rx"] + sent - LATE - MISSED, "tx": port["tx"] + sent, "missed": port["missed"] + MISSED}
            owed = LATE
            sys.stdout.write(STOPPED.format(rx=sent - LATE - MISSED, tx=sent))
            mode = ""
        elif words == ["stop"] and mode:
            port["rx"] += owed
            sys.stdout.write(STOPPED.format(rx=owed, tx=0))
            owed = 0
        elif words[:2] == ["show", "port"]:
            sys.stdout.write(PORT.format(**port))
        elif words == ["quit"]:
            break
        sys.stdout.flush()


if __name__ == "__main__":
    main()
