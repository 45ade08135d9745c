"""Ctrl-C while `strata map` looks for a mapping: the best so far, and the exit code of other searches."""

from strata.app.cli import run_command
from strata.optimise.mappings.joint_layer import LayerSearch


def test_ctrl_c_prints_the_best_so_far(monkeypatch, capsys):
    asked = []

    def divided(self, node, own=LayerSearch._divided):
        asked.append(node.bound)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return own(self, node)

    monkeypatch.setattr(LayerSearch, "_divided", divided)
    words = "map --program gpt3-layer --system 8xsn10 --phase train --plan tp=8 --tiles 1,32"
    assert run_command(words.split()) == 130
    said = capsys.readouterr().out
    assert "within" in said and "Partitions" in said


def test_ctrl_c_before_anything_was_found_does_not_say_that_nothing_fits(monkeypatch, capsys):
    def never(self, room, deadline):
        raise KeyboardInterrupt

    monkeypatch.setattr(LayerSearch, "first", never)
    assert run_command(["map", "--program", "gpt3-layer", "--system", "8xsn10", "--plan", "tp=8"]) == 130
    assert "fits" not in "".join(capsys.readouterr())
