"""Trains a job for some steps and prints the loss of each: ergon train in a program of your own.

    ergon tokenize bytes BOOK.txt -o tokens
    python3 train.py tiny.yaml 20 [RUN]

Where the job is of several ranks: ergon run -n 2 -- python3 train.py job.yaml 20.
"""
import sys

import ergon

folder = sys.argv[3] if len(sys.argv) > 3 else None  # with it a log, a page and checkpoints
for stats in ergon.Train(sys.argv[1], steps=int(sys.argv[2]), folder=folder):
    if stats.rank == 0:
        print(f"step {stats.step} of {stats.steps}: loss {stats.loss:.4f}, "
              f"{1e3 * stats.step_s:.0f} ms")
if folder and stats.saved and stats.rank == 0:
    print(f"{folder} has a checkpoint of step {stats.step}")
