"""Mines the catalogue of operators that tasks are composed of, and tries what is made of it.

Everything here runs in a jail. It uses the standard library and torch; `models` also imports
transformers.
"""
