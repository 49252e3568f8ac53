"""TTrees: branch tables, baskets, and files written with them."""
