"""Mines the catalogue of operators from which tasks are composed, and tries the composed tasks.

Everything here runs in a jail. It uses the standard library and torch; `models` also imports
transformers.
"""
