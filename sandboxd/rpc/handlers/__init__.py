"""One module for each group of methods; `table` says which function answers which method."""
