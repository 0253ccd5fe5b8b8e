"""Core: the types, roles, random streams and errors that every station of the flow shares. Imports nothing of ours."""
