"""Networks that say what an object is and where: backbones, heads, their training and the search for settings."""
