"""Numbers that no chip can be made of, refused in one line."""

from __future__ import annotations

import numpy as np

from strata.arrays import leaves
from strata.errors import require
from strata.hardware.components import LinkPhy, Logic, MemoryDevice
from strata.hardware.generate.budget import Budget, check_shares
from strata.hardware.generate.template import Template, check_template
from strata.hardware.generate.voltage import Supplied


def check_inputs(
    logic: Logic,
    budget: Budget,
    template: Template,
    device: MemoryDevice,
    links: tuple[LinkPhy, ...],
    *,
    names: tuple[str, ...],
) -> None:
    """Refuse shares above 1 and voltages out of order; numbers still being traced are taken as they are."""
    given = leaves((budget, logic, device, template))
    if any(not isinstance(v, (float, int, np.ndarray, np.generic)) for v in given):
        return
    check_template(template)
    assert template.rules is not None
    check_shares(budget, names, sums=template.rules.sums == "at most 1")
    supplied: list[tuple[str, Supplied]] = [("logic", logic), (device.name, device)]
    supplied += [(link.name, link) for link in links]
    for name, part in supplied:
        low = np.all(np.asarray(part.threshold_voltage) < np.asarray(part.min_voltage))
        high = np.all(np.asarray(part.min_voltage) <= np.asarray(part.max_voltage))
        nominal = np.all(np.asarray(part.threshold_voltage) < np.asarray(part.voltage))
        require(
            bool(low and high and nominal),
            f"{name}: voltages must keep threshold < lowest <= highest and threshold < nominal",
            threshold=part.threshold_voltage,
            lowest=part.min_voltage,
            nominal=part.voltage,
            highest=part.max_voltage,
        )
