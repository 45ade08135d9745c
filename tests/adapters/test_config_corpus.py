"""A corpus of real configs: their parameters as published, or refused by name with the reason."""

import importlib.util
import json
from pathlib import Path

import pytest

from strata.adapters.huggingface.config import reading
from strata.adapters.huggingface.names import NotModelled, families, refusals
from strata.params import data_folder, names
from strata.workload.tasks import decode

FOLDER = Path(__file__).parents[1] / "data" / "configs"
INDEX = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
ROOT = Path(__file__).parents[2]


def corpus():
    """Name, config and facts of each: the shipped models and those kept for this test alone."""
    for name in names("models"):
        config = json.loads((data_folder("models") / f"{name}.json").read_text(encoding="utf-8"))
        yield name, config, config["_strata"]
    for name, facts in INDEX.items():
        yield name, json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")), facts


CORPUS = {name: (config, facts) for name, config, facts in corpus()}
READ = [name for name, (_, facts) in CORPUS.items() if "refused" not in facts]


def test_the_corpus_is_large_enough_and_sourced():
    kinds = {config["model_type"] for config, _ in CORPUS.values()}
    assert len(CORPUS) >= 150 and len(kinds) >= 95
    assert len({CORPUS[name][0]["model_type"] for name in READ}) >= 60
    for name, (_, facts) in CORPUS.items():
        assert len(facts["source"]) > 20, name
        assert ("refused" in facts) != ("parameters" in facts and len(facts["parameters_source"]) > 10), name


@pytest.mark.parametrize("name", READ)
def test_parameters_are_those_published(name):
    config, facts = CORPUS[name]
    read = reading(config, name)
    counted = float(read.model.trace(decode(1.0, 1.0)).parameters())
    assert counted == pytest.approx(facts["parameters"], rel=0.005)
    assert read.size_like == (), "sizes of a real config that are not read"


@pytest.mark.parametrize("name", [n for n in CORPUS if n not in READ])
def test_what_is_not_modelled_is_refused_by_name_with_the_reason(name):
    config, facts = CORPUS[name]
    with pytest.raises(NotModelled) as error:
        reading(config, name)
    said = str(error.value)
    assert facts["refused"] in said and "not modelled" in said and "needed" in said and "\n" not in said


def test_no_architecture_is_both_read_and_refused():
    assert not families().keys() & refusals().keys()


def test_the_page_of_models_is_up_to_date():
    spec = importlib.util.spec_from_file_location("models_page", ROOT / "docs" / "scripts" / "models_page.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    written = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert written == page.models_page(), "run python docs/scripts/models_page.py docs/models.md"
