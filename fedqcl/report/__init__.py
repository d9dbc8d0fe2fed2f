"""Pictures of a run, drawn from its files alone."""
