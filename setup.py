"""The package list, which pyproject.toml cannot express: found packages together with one mapped folder.

`conf/` lies at the top of the checkout and is installed as `msrun_cli/conf`; everything else is in pyproject.toml.
"""

from setuptools import find_namespace_packages, find_packages, setup

NOT_PACKAGES = ["*.__pycache__", "*.__pycache__.*"]

setup(
    packages=[
        *find_packages(include=["msrun_cli", "msrun_cli.*"]),
        # A namespace package: Hydra loads plugins only from `hydra_plugins`, which must have no __init__.py.
        *find_namespace_packages(include=["hydra_plugins", "hydra_plugins.*"], exclude=NOT_PACKAGES),
        "msrun_cli.conf",
    ],
    package_dir={"msrun_cli.conf": "conf"},
    package_data={
        "msrun_cli.conf": ["**/*.yaml"],
        "msrun_cli.environment": ["*.json"],
        "msrun_cli.kernels": ["source/*"],
    },
)
