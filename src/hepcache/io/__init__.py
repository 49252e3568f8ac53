"""Bytes by range from any origin, once for all formats, and files written whole or not at all."""
