"""The benchmark of runtime monitors: what a monitor beside a model is worth, by the method FARM."""
