from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from msrun_cli.builders.data import build_chain
from msrun_cli.common.errors import ConfigError

FLIP = {"_target_": "msrun_cli.transforms.flip.RandomHorizontalFlip", "probability": 1.0}


def test_stages_of_steps_count_from_both_ends() -> None:
    steps = {
        "always": FLIP,
        "last": {**FLIP, "from_epoch": 7},
        "early": {**FLIP, "until_epoch": 2},
        "not_at_the_end": {**FLIP, "until_epoch": -3},
        "never": {**FLIP, "until_epoch": -30},
        "off": None,
    }
    chain = build_chain(OmegaConf.create(steps), epochs=10)
    on = {name: [epoch for epoch in range(12) if epoch in chain.stages[name]] for name in chain.steps}
    assert on["always"] == list(range(12)) and on["last"] == [7, 8, 9, 10, 11]
    assert on["early"] == [0, 1] and on["not_at_the_end"] == list(range(7)) and on["never"] == []
    assert "off" not in on


def test_what_a_step_refuses_is_said_with_its_name() -> None:
    node = {"_target_": "msrun_cli.transforms.mosaic.Mosaic", "shrink": "bicubic"}
    with pytest.raises(ConfigError, match="transforms step mine: interpolation 'bicubic'.*linear, area"):
        build_chain(OmegaConf.create({"mine": node}))
