"""Order, journal, resume, retries and progress for anything that measures a point. Knows no XDP."""

from xdplab.runner.engine import Study, run_trials
from xdplab.runner.progress import AnyTrial, Observer, PlainObserver, RichObserver, observer_for
from xdplab.runner.state import Attempt, RunState, read_state

__all__ = [
    "AnyTrial",
    "Attempt",
    "Observer",
    "PlainObserver",
    "RichObserver",
    "RunState",
    "Study",
    "observer_for",
    "read_state",
    "run_trials",
]
