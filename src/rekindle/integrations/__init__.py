"""Somebody else's trainers: one line for the user, on the Keeper.

`hosted.HostedKeeper` is what all of them share; each host has a file with a `KeeperCallback`, which knows the host's
moments and nothing else.
"""
