"""A discrete-event simulator of clusters that drives the placement's own code."""
