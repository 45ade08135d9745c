"""The unit a number is written in changes no record, and so no metric."""

import re

import pytest
from cases import same

from strata.app.render.catalogue import FILES, SHOWN
from strata.base.arrays import leaves
from strata.params import find, fitted_file, names


def rescaled(text):
    """A data file with every value in another unit; temperatures alone have none that a factor leads to."""

    def change(match):
        number, unit = float(match.group(1)), match.group(2)
        return f'value = "{number * 1000.0!r} {unit}*mB/B"'

    return re.sub(r'value = "([-+\d.eE]+\d) ?((?!degC)[A-Za-z1/%][^"]*)"', change, text)


def copied(kind, name, folder):
    """The rescaled copy of a shipped file; a base beside it is copied, too."""
    content = find(kind, name).read_text(encoding="utf-8")
    base = re.search(r'^base = "([^"]+)"', content, re.M)
    content = rescaled(content)
    if base:
        copied(kind, base.group(1), folder)
        content = content.replace(base.group(), f'base = "{base.group(1)}.toml"')
    path = folder / f"{name}.toml"
    fitted = fitted_file(find(kind, name))
    if fitted.exists():  # what was fitted lies over the record's own file
        (folder / f"{name}-own.toml").write_text(content, encoding="utf-8")
        content = f'base = "{name}-own.toml"\n' + rescaled(fitted.read_text(encoding="utf-8"))
    path.write_text(content, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_in_other_units_is_the_same_record(kind, tmp_path):
    """Of every kind of file, every one that is shipped."""
    different, written = [], 0
    for name in names(kind):
        own, other = (leaves(SHOWN[kind](n)) for n in (name, copied(kind, name, tmp_path)))
        different += [name] if len(own) != len(other) else []
        different += [f"{name}: {a} {b}" for a, b in zip(own, other, strict=False) if not same(a, b, 1e-12)]
        written += (tmp_path / f"{name}.toml").read_text(encoding="utf-8").count("*mB/B")
    assert different == [] and (written or kind in ("system", "template"))  # names and shares alone
