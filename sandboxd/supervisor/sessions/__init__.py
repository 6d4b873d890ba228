"""Sessions: a tree of agents that share the supervisor, each with a mode and a budget."""
