"""The rules of a consistent box, and the walk over a box that checks them."""
