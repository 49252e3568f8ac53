"""coffea on top of the reader: NanoEvents, Runner and executor."""

from hepcache.process.executor import Executor
from hepcache.process.runner import Runner

__all__ = ["Executor", "Runner"]
