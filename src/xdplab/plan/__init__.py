"""What to measure: factors in, points and trials in a seeded order out. Knows no host and no lab."""

from xdplab.plan.factors import FACTORS, Arrangement, Factor
from xdplab.plan.model import (
    Block,
    Plan,
    UserMetric,
    is_plan_file,
    load_plan,
    parse_plan,
    race_of,
)
from xdplab.plan.points import Point, ProgramFactors, Trial, estimate_s, extent, points_of, schedule, trial_s

__all__ = [
    "FACTORS",
    "Arrangement",
    "Block",
    "Factor",
    "Plan",
    "Point",
    "ProgramFactors",
    "Trial",
    "UserMetric",
    "estimate_s",
    "extent",
    "is_plan_file",
    "load_plan",
    "parse_plan",
    "points_of",
    "race_of",
    "schedule",
    "trial_s",
]
