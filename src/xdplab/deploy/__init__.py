"""Deploy: puts what a trial needs on a host, reads it back, and removes it again.

``native`` builds C where it runs; ``device`` and ``queues`` set an interface and restore it; ``xdp`` and
``afxdp`` hold a program through a session whose end detaches it; ``deployment`` is a trial's record of all this.
"""
