"""MQ: phases, unique keys and retention."""
