"""``python -m hepcache``: the command, for where it is not on the PATH."""

from hepcache.cli import main

if __name__ == "__main__":
    main()
