"""The audit trail: what ran, for whom, with which outcome; redacted before it is written."""
