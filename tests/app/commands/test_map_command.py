"""`strata map`: what it prints, draws, and says of bad input."""

from xml.etree import ElementTree

ASK = (
    "map",
    "--program",
    "gpt3-layer",
    "--system",
    "8xsn10",
    "--plan",
    "tp=8",
    "--layouts",
    "given",
    "--tiles",
    "1,32",
)


def test_a_mapping_is_printed_and_drawn(answer, tmp_path):
    picture, roofline = tmp_path / "map.svg", tmp_path / "roof.svg"
    text = answer(*ASK, "--next", "1", "--svg", picture, "--roofline", roofline)
    for said in ("optimal", "norm_1 q k v", "kernel by kernel", "number 2", "layouts on tp", "space:"):
        assert said in text
    for path in (picture, roofline):
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
    assert "binds" in picture.read_text()


def test_machines_get_the_same(answer):
    got = answer(*ASK, "--json")
    assert got["optimal"] and got["bound"] <= got["step"] * (1 + 1e-9)
    assert sum(p["time"] for p in got["partitions"]) == got["stage"]
    assert got["compared"][1]["loss"] > 0.5 and int(got["space"]["mappings"]) > 1e6


def test_bad_input_is_one_line(strata, tmp_path):
    pin = tmp_path / "pin.toml"
    pin.write_text('[[partition]]\nkernels = ["up"]\n[[partition]]\nkernels = ["q"]\n')
    for words, said in (
        (("--rule", "overlap"), "SWITCH=WORD"),
        (("--rule", "speed=high"), "switch of fusion"),
        (("--pin", str(tmp_path / "none.toml")), "there is no file"),
        (("--pin", str(pin)), "break the order"),
        (("--plan", "tp=3"), "use all devices"),
        (("--layouts", "mine"), "free or given"),
    ):
        got = strata(*ASK, *words)
        assert got.code == 2 and said in got.err and got.err.count("\n") == 1
    pin.write_text('[[partition]]\nkernels = ["nobody"]\n')
    assert "pinned kernel" in strata(*ASK, "--pin", str(pin)).err
