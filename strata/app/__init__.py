"""What people touch: the command line, tables, pictures and reports."""

# kinds of data that `strata list` names
_LISTED = (
    "chips models programs systems fabrics transports packets memories technologies devices links bonding "
    "packaging templates budgets engines recipes spaces precisions"
)
LISTED = tuple(_LISTED.split())
