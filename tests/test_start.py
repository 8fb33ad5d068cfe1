"""A process of ours has the dataclasses of any other."""

import dataclasses
import gc
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from xdplab.start import quickly


def _usual() -> tuple[Any, Any, Any]:
    @dataclass(frozen=True, order=True)
    class Point:
        x: int
        tags: list[str] = field(default_factory=list, compare=False)

    @dataclass(frozen=True)
    class Named(Point):
        name: str = "n"

        def __post_init__(self) -> None:
            assert self.x >= 0

    @dataclass(slots=True)
    class Kept:
        point: Point

    return Point, Named, Kept


@pytest.fixture(params=["usual", "quick"])
def classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any, Any]]:
    thresholds = gc.get_threshold()
    monkeypatch.setattr(dataclasses, "_create_fn", getattr(dataclasses, "_create_fn", None))
    if request.param == "quick":
        quickly()
    yield _usual()
    gc.set_threshold(*thresholds)


def test_quick_classes_do_what_usual_ones_do(classes: tuple[Any, Any, Any]) -> None:
    point, named, kept = classes
    for _ in range(2):  # a method compiles itself the first time
        assert point(1) == point(1, ["other"])
        assert point(1) < point(2)
        assert hash(point(1)) == hash(point(1, ["other"]))
        assert repr(named(1)).endswith("Named(x=1, tags=[], name='n')")
        assert replace(named(1), name="m").name == "m"
        assert named(1) != point(1)
        assert kept(point(1)).point.tags is not kept(point(1)).point.tags
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            named(1).x = 2
        with pytest.raises(TypeError, match=r"Point\.__init__\(\) got an unexpected keyword argument 'y'"):
            point(1, y=2)
        with pytest.raises(AssertionError):
            named(-1)
