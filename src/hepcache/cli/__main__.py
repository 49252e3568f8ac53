"""``python -m hepcache.cli`` is the command ``hepcache``."""

from hepcache.cli.app import main

if __name__ == "__main__":
    main()
