"""The sources of plugin/pb, and the program that generates it."""
