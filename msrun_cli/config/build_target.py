"""Calls the `_target_` of a configuration node."""

from __future__ import annotations

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate as hydra_instantiate

from msrun_cli.common.errors import UserError


def instantiate(node: Any, **arguments: Any) -> Any:
    """As Hydra's; what the target says to users (DataError, ConfigError) comes out as it is, not in Hydra's words."""
    try:
        return hydra_instantiate(node, **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise
