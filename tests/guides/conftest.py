"""What every guide needs: the packages that its TypeScript imports."""

import pytest

from .node_project import install


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    install()
