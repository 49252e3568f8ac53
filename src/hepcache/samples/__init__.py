"""Samples of NanoAOD and of HDF5 tables, made on the spot."""
