"""Every graph that a test makes is checked after every pass, as `check_graph` has it; shared cases can be
imported.
"""

import os

os.environ.setdefault("STRATA_CHECK", "1")
