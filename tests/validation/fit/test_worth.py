"""What fitted numbers are worth on families left out."""

from pathlib import Path

from strata.validation.fit.table import fit_table
from strata.validation.fit.worth import quantities_worth

DATA = Path(__file__).parents[3] / "validation"


def test_every_number_of_a_record_is_judged_with_and_without_it():
    worth = quantities_worth(DATA, ["nvlink3", "megatron"])
    groups = {(one.record, one.group) for one in worth}
    assert groups == {
        ("nvlink3", "library collectives"),
        ("nvlink3", "direct all-reduce"),
        ("all", "megatron"),
    }
    for one in worth:
        assert one.configurations <= one.rows and one.judged > 0 and one.error_with > 0
    assert any(one.error_without > one.error_with for one in worth)
    plain = worth[0].to_dict()
    assert plain["with"] == worth[0].error_with and "error_with" not in plain


def test_numbers_of_runs_have_a_value_that_changes_nothing():
    for group in fit_table().groups:
        if group.search.slopes:
            assert set(group.neutral) == {q.path for q in group.quantities}, group.name
