"""The configuration of a profile is that of a training, with a section of its own."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from msrun_cli.config.composer import Composer


def test_it_chooses_from_the_groups_of_a_training() -> None:
    assert Composer("profile").groups == Composer("train").groups


def test_it_is_the_training_recipe(call) -> None:
    words = ("model=resnet18", "dataset=imagefolder", "dataset.root=x", "optimizer.lr=0.3", "schedule=cosine")
    train = OmegaConf.create(call("train", *words, cfg="job").out)
    profile = OmegaConf.create(call("profile", *words, cfg="job").out)
    assert set(profile) - set(train) == {"profile"}
    assert OmegaConf.masked_copy(profile, list(train)) == train


@pytest.mark.parametrize(
    ("word", "levels"),
    [
        ("profile.amp=O0,O2", ["O0", "O2"]),
        ("profile.amp=O3", ["O3"]),
        ("profile.amp=[]", []),
    ],
)
def test_levels_are_one_list(call, word: str, levels: list[str]) -> None:
    result = call("profile", word)
    assert result.code == 0, result.err
    config = result.configs[-1]
    assert list(config.profile.amp) == levels
    assert config.epochs == 10  # the recipe of the generated shapes


def test_a_sweep_over_levels_stays_one(call) -> None:
    result = call("profile", "profile.amp=O0,O2", "epochs=0", multirun=True)
    assert result.code == 2 and "epochs=0" in result.err  # composed and checked as two jobs


def test_slips_are_said_at_once(call) -> None:
    words = {
        "profile.what=speed": "one of both, data, step",
        "profile.wat=data": 'mean "profile.what"?',
        "profile.steps=2": "at least 5",
        "profile.amp=O0,O5": "each item one of O0, O1, O2, O3",
        "profile.try=maybe": "true or false",
    }
    result = call("profile", *words)
    assert result.code == 2 and result.configs == []
    for said in words.values():
        assert said in result.err
    assert result.err.count("error: ") == len(words)


@pytest.mark.parametrize(("word", "said"), [("profile.amp=null", "must be a list"), ("profile=3", "must be a section")])
def test_slips(call, word: str, said: str) -> None:
    result = call("profile", word)
    assert result.code == 2 and said in result.err and "Traceback" not in result.err
