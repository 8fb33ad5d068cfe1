"""Deploy: what a trial needs on a host, put there, read back, and taken away again.

``native`` builds C where it runs; ``device`` and ``queues`` set an interface and give it back as it was; ``xdp`` and
``afxdp`` hold a program through a session whose end detaches it; ``deployment`` is what a trial records of all this.
"""
