"""Columns kept on local SSD, shared by the processes of a host."""
