from tests.rootfiles import bad_files, catalogue, write_tree  # noqa: F401 - fixtures
