from tests.formats.conftest import zstd_path  # noqa: F401 - a fixture
from tests.rootfiles import catalogue, write_tree  # noqa: F401 - fixtures
