"""Pictures, drawn from plain lists: of a run, and how all of them look."""
