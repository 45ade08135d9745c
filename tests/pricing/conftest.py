"""The packet simulator, built once for the tests that run it; where ns-3 is not installed they are skipped by
name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "validation" / "ns3" / "collective.cc"


@pytest.fixture(scope="session")
def simulator(tmp_path_factory):
    compiler = os.environ.get("CXX", "g++")
    asked = [compiler, "-E", "-x", "c++", "-"]
    include = '#include "ns3/core-module.h"\n'
    here = (
        shutil.which(compiler)
        and subprocess.run(asked, input=include, capture_output=True, text=True, check=False).returncode == 0
    )
    if not here:
        pytest.skip("ns-3 is not installed (Debian: apt-get install ns3 libns3-dev)")
    program = tmp_path_factory.mktemp("ns3") / "collective"
    libraries = ["-lns3-core", "-lns3-network", "-lns3-point-to-point"]
    subprocess.run([compiler, "-O1", "-std=c++17", str(SOURCE), "-o", str(program), *libraries], check=True)
    return program
