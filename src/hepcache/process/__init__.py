"""coffea on top of the reader: NanoEvents, Runner and executor."""
