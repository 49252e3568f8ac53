"""HDF5's file format, as far as files of tables need it."""
