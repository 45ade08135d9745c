"""Numbers with sources: how data files become frozen dataclasses of plain quantities.

A dataclass describes its file: each field made by `quantity` has a unit and a meaning, each `part` is a table
of its own. In a file a quantity is ``{ value = "4.8 TB/s", source = "H200 datasheet, table 1" }``; sources
used often stand once under ``[sources]`` and are cited as ``"@datasheet: table 1"``. ``base = "h200"`` starts
from another file and overrides it; ``source = "..."`` at the top is that of every plain number. Equations see
plain numbers; `Param` (value, unit, source) travels beside them in `Sources`.
"""

from strata.params.declare import (
    MARKS,
    Named,
    Param,
    Sources,
    by_name,
    choice,
    inherited,
    missing_paths,
    of_other_files,
    part,
    positive,
    quantity,
    record,
    spelled_out,
    text,
    texts,
)
from strata.params.files import (
    KINDS,
    check_shipped,
    dashed,
    data_folder,
    data_folders,
    find,
    fitted_file,
    load_table,
    meant,
    merged,
    names,
    read_toml,
    remembered,
    shipped_file,
    stating_file,
    table_named,
    unfitted,
)
from strata.params.paths import (
    GIVEN,
    called,
    changed_record,
    leaf_paths,
    override,
    stated,
    unit_at,
    value_at,
    with_value,
    word_paths,
)
from strata.params.records import all_missing, build, file_model, read_record, sourced_record
