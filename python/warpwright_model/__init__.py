"""Divides a whole model into regions and writes each as a task in KernelBench form.

Runs in a jail of its own, with the user's model code. The program checks its answer as data of a
stranger.
"""
