"""Edits and changes of structure as values, the transaction that writes them, and the record of what happened.

The only writers of parameters, buffers, structure and optimizer state are in here.
"""
