"""What a program is: anything that a workload turns into a graph."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Protocol

from strata.base.arrays import Number
from strata.workload.graph import Graph
from strata.workload.tasks import Workload


class Program(Protocol):
    """Anything that a workload turns into a graph: a language model, an FFT, a recommender, your own.

    Name, units and trace it says itself. The rest says how it is divided and has defaults, for a class that
    inherits them and, by `member`, for one that does not: each axis that has units lies on a dimension of the
    mesh that is called like it.
    """

    name: str
    kernel_modules: ClassVar[tuple[str, ...]] = ()  # what strategies of kernel parallelism divide
    takes_plans: ClassVar[bool] = (
        False  # its axes are those that plans divide, in place of a layout of its own
    )

    @property
    @abstractmethod
    def units(self) -> dict[str, Number]:
        """Indivisible units of the axes that layouts divide."""
        ...

    @abstractmethod
    def trace(self, work: Workload) -> Graph:
        """The graph of one step, undivided."""
        ...

    @property
    def mesh_dimensions(self) -> tuple[str, ...]:
        """Dimensions of the mesh of its layout, as a division is typed."""
        return tuple(self.units)

    def layout(self, *_: Any, **degrees: Any) -> dict[str, Any]:
        """Mesh, axes and modules of its layout under such degrees."""
        return {"mesh": degrees, "axes": {axis: axis for axis in degrees}}

    def layout_text(self) -> str:
        """How a division is typed."""
        return ",".join(f"{name}=2" for name in member(self, "mesh_dimensions"))

    def division_over(self, devices: float) -> str:
        """The division over so many devices where none is asked for; "": it has to be typed."""
        return ""


def member(program: Any, name: str) -> Any:
    """A member of the protocol: the program's own, else the default.

    >>> from strata.workload.program import program
    >>> member(program("llama-3-8b"), "takes_plans"), member(program("fft-1024"), "kernel_modules")
    (True, ())
    """
    if hasattr(program, name):
        return getattr(program, name)
    default = vars(Program)[name]
    return default.__get__(program) if hasattr(default, "__get__") else default
