"""Labs in QEMU guests: real kernels of a distribution, with the netns lab inside, or as a DUT behind a tap."""
