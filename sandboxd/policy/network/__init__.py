"""The network of a plan: kinds, host rules, the two keys of the exfiltration rules."""
