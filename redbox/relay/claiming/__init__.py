"""Claims: how many, for how long they are held, and where they wait for a worker."""
