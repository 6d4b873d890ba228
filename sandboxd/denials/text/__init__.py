"""Reading a command's output: lines, phrases, subjects, translations."""
