"""The daemon's half of the init: messages, launch, processes, evidence."""
