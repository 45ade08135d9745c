"""A chip in a few lines, of the shape of the real problem: units and banks in whole numbers, rooflines, a die
that leaves room for memory stacks."""

import numpy as np

from deepflow.design.variables import ChoiceVariable, DesignVariables, RealVariable, ShareClass

AREA, POWER = ("core", "l2", "memory", "net"), ("core", "l2", "memory", "net")
VARIABLES = DesignVariables(
    shares=(
        ShareClass(name="area", members=AREA, floor=0.001),
        ShareClass(name="power", members=POWER, floor=0.001),
    ),
    reals=(RealVariable(name="die_area", low=400.0, high=1130.0),),
    choices=(ChoiceVariable(name="devices", labels=("1", "2", "4", "6")),),
)
SPLIT_ONLY = DesignVariables(shares=VARIABLES.shares[:1])


def times(designs):
    """Seconds of a step of two kernels and an exchange, and how far memory overflows."""
    area, power = designs[:, :4] * designs[:, 8:9], designs[:, 4:8] * 300.0
    stacks = np.array([1.0, 2.0, 4.0, 6.0])[designs[:, 9].astype(int)]
    units = np.floor(area[:, 0] / 0.38)
    clock = np.minimum(1.33e9 * np.cbrt(power[:, 0] / np.maximum(units * 0.13, 1e-9)), 2e9)
    rate = np.maximum(units * 128 * clock, 1.0)
    cache = np.maximum(np.floor(area[:, 1] / 0.02) * 32768, 1.0)
    fit = np.minimum(np.floor((1230.0 - designs[:, 8]) / 100.0), np.floor(area[:, 2] / 5.0))
    devices = np.minimum(stacks, fit)
    dram = np.maximum(np.minimum(devices * 240e9, power[:, 2] / 33.6e-12), 1.0)
    sram = np.maximum(power[:, 1] / 1e-12, 1.0)
    link = np.maximum(np.minimum(np.floor(area[:, 3] / 0.045) * 2.5e9, power[:, 3] / 104e-12), 1.0)
    total = 4e8 / link
    for flop, reuse in ((1e12, 1.0), (2e11, 0.05)):
        byte = 2.0 * flop / (reuse * np.sqrt(cache / 6.0))
        total = total + np.max([flop / rate, byte / dram, flop / 16.0 / sram], axis=0)
    need = 6e9
    return total, np.maximum(need / np.maximum(devices * 4e9, 1.0) - 1.0, 0.0)


def convex(designs):
    """Work over the share that does it: the best shares go with the root of the work, known by hand."""
    work = np.array([9.0, 4.0, 1.0, 1.0])
    return (work / designs).sum(axis=1), np.zeros(len(designs))


CONVEX_BEST = np.array([3.0, 2.0, 1.0, 1.0]) / 7.0
