"""`redbox demo`: the command, the script of the demo, its service and its narration."""
