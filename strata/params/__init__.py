"""Numbers with sources: how data files become frozen dataclasses of plain quantities.

A dataclass describes its file: each field made by `quantity` has a unit and a meaning, each `part` is a table
of its own. In a file a quantity is ``{ value = "4.8 TB/s", source = "H200 datasheet, table 1" }``; sources
used often stand once under ``[sources]`` and are cited as ``"@datasheet: table 1"``. ``base = "h200"`` starts
from another file and overrides it; ``source = "..."`` at the top is that of every plain number. Equations see
plain numbers; `Param` (value, unit, source) travels beside them in `Sources`.
"""

from strata.params.declare import (
    MARKS,
    Param,
    Sources,
    by_name,
    of_other_files,
    part,
    positive,
    quantity,
    record,
    text,
    texts,
)
from strata.params.files import (
    KINDS,
    dashed,
    data_folder,
    find,
    fitted_file,
    load_table,
    meant,
    merged,
    names,
    read_toml,
    remembered,
    stating_file,
    unfitted,
)
from strata.params.paths import GIVEN, called, leaf_paths, override, stated, value_at, with_value, word_paths
from strata.params.records import all_missing, build, file_model, read_record, sourced_record
from strata.params.short import inherited, missing_paths, spelled_out

__all__ = [
    "GIVEN",
    "KINDS",
    "MARKS",
    "Param",
    "Sources",
    "all_missing",
    "build",
    "by_name",
    "called",
    "dashed",
    "data_folder",
    "file_model",
    "find",
    "fitted_file",
    "inherited",
    "leaf_paths",
    "load_table",
    "meant",
    "merged",
    "missing_paths",
    "names",
    "of_other_files",
    "override",
    "part",
    "positive",
    "quantity",
    "read_record",
    "read_toml",
    "record",
    "remembered",
    "sourced_record",
    "spelled_out",
    "stated",
    "stating_file",
    "text",
    "texts",
    "unfitted",
    "value_at",
    "with_value",
    "word_paths",
]
