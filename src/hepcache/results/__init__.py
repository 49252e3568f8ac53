"""What was computed once and need not be computed again."""

from hepcache.results.derived import derived
from hepcache.results.fingerprint import fingerprint
from hepcache.results.opened_files import OpenedFiles, content_digest, opened_files

__all__ = ["OpenedFiles", "content_digest", "derived", "fingerprint", "opened_files"]
